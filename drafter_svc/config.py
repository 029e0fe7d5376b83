"""What a drafter needs to know before it starts. Reads no files and no environment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from slipstream.config import EngineConfig
from slipstream.engine.step_choice import StepKind
from slipstream.metrics.endpoint import check_address
from slipstream.telemetry.otlp import check_endpoint
from slipstream.wire.tls import ServerTls

DEFAULT_LISTEN: Final = "127.0.0.1:50052"
_CPU_ROWS: Final = 16
_GPU_ROWS: Final = 64  # for the price of a few
MOST_BRANCHES: Final = 64  # that may be asked for
MOST_LOOP_STEPS: Final = 16
MANY: Final = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class RowLimits:
    """How much one draft step feeds. Raises ValueError naming field and value."""

    max_rows: int  # sequences x branches
    max_tokens: int  # over all rows, prompts included
    max_prefill_tokens: int  # of prompts, while anyone who is past the prompt is drafted for
    max_branches: int = MOST_BRANCHES  # of one sequence, whatever it asks for; 0: nothing is drafted ahead of a commit
    most_ahead: int = MANY  # open sequences with which anything is drafted ahead of commits
    most_drafted: int = MANY  # open sequences with which anything is drafted at all

    def __post_init__(self) -> None:
        for name in ("max_rows", "max_prefill_tokens", "most_ahead", "most_drafted"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be >= 1")
        if not 0 <= self.max_branches <= MOST_BRANCHES:
            raise ValueError(f"max_branches is {self.max_branches}; it must be in 0..{MOST_BRANCHES}")
        if self.max_tokens < self.max_rows:
            raise ValueError(f"max_num_batched_tokens is {self.max_tokens}; it must be >= max_rows {self.max_rows}")


@dataclass(frozen=True, kw_only=True, slots=True)
class AdapterSettings:
    """Adapters of the draft model, for which room is made only if any are wanted. Raises ValueError."""

    directory: Path | None = None  # what callers may load from; None: nobody loads any at run time
    at_start: tuple[tuple[str, Path], ...] = ()  # name, folder
    most: int = 4  # held at one time
    max_rank: int = 16

    def __post_init__(self) -> None:
        if self.directory is not None and not self.directory.is_dir():
            raise ValueError(f"adapters_dir is {self.directory}, which is no directory")
        if not 1 <= self.most <= 1024:
            raise ValueError(f"max_adapters is {self.most}; it must be in 1..1024")
        if not 1 <= self.max_rank <= 256:
            raise ValueError(f"max_adapter_rank is {self.max_rank}; it must be in 1..256")
        if len(self.at_start) > self.most:
            raise ValueError(f"{len(self.at_start)} adapters are named and max_adapters is {self.most}; raise it")

    @property
    def wanted(self) -> bool:
        return self.directory is not None or bool(self.at_start)


NO_ADAPTERS: Final = AdapterSettings()


@dataclass(frozen=True, kw_only=True, slots=True)
class DrafterConfig:
    """One drafter service. Raises ValueError naming field and value."""

    engine: EngineConfig
    listen: str = DEFAULT_LISTEN  # host:port, port 0 = any free one
    tls: ServerTls | None = None  # None: plaintext
    metrics_listen: str = ""  # host:port of the metrics, port 0 = any free one; empty = not shown
    otlp_endpoint: str = ""  # of the collector that gets traces; empty = there are none
    proposer: str = "draft_model"
    max_rows: int = _CPU_ROWS  # of one draft step
    max_prefill_tokens: int = 128  # of prompts per step while others are drafted for
    max_branches: int = MOST_BRANCHES  # of one sequence; 0 where verifier and drafter share cores (docs/performance.md)
    most_ahead: int = MANY  # open sequences with which it runs ahead: few where it computes on the verifier's GPU
    most_drafted: int = MANY  # open sequences with which it drafts: there, those that gain by waiting for it
    stop_below: float = 0.0  # a path of one-hot drafts ends once it is less likely than this to stand; 0 = never
    num_kept: int = 32  # tokens that a draft token's law keeps
    loop_steps: int = (
        6  # on a GPU, most tokens of a path drawn in one captured loop, which a commit waits for; 0 = none
    )
    draft_step: str = StepKind.AUTO  # how a step of those is launched, see slipstream/engine/step_choice.py
    adapters: AdapterSettings = NO_ADAPTERS

    def __post_init__(self) -> None:
        check_address(self.metrics_listen)
        check_endpoint(self.otlp_endpoint)
        if not 1 <= self.num_kept <= 1024:
            raise ValueError(f"num_kept is {self.num_kept}; it must be in 1..1024")
        if not 0 <= self.loop_steps <= MOST_LOOP_STEPS:
            raise ValueError(f"loop_steps is {self.loop_steps}; it must be in 0..{MOST_LOOP_STEPS}")
        if self.draft_step not in list(StepKind):
            raise ValueError(f"draft_step is {self.draft_step!r}; it must be one of {', '.join(StepKind)}")
        if not 0 <= self.stop_below < 1:
            raise ValueError(f"stop_below is {self.stop_below}; it must be in [0, 1)")
        if self.adapters.wanted and self.proposer != "draft_model":
            raise ValueError(f"proposer is {self.proposer!r}, which takes no adapters; only draft_model does")
        assert self.row_limits  # validates them

    @property
    def wants_loop(self) -> bool:
        """Whether drafts are made by captured loops, where the proposer has any."""
        return self.engine.cuda_graphs and self.loop_steps > 0 and self.engine.device.startswith("cuda")

    @property
    def row_limits(self) -> RowLimits:
        return RowLimits(
            max_rows=self.max_rows,
            max_tokens=self.engine.max_num_batched_tokens,
            max_prefill_tokens=self.max_prefill_tokens,
            max_branches=self.max_branches,
            most_ahead=self.most_ahead,
            most_drafted=self.most_drafted,
        )


def default_max_rows(device: str) -> int:
    return _CPU_ROWS if device == "cpu" else _GPU_ROWS
