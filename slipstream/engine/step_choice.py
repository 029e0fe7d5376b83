"""Chooses how draft steps are run: the fastest way that suits model, device and number of rows. Knows no kernels.

A fast step is believed once it has given what the plain one gives, on this GPU and this model. If it does not, or its
kernels do not build, drafting goes on without it: a drafter may be slow, and must not fail. Which of those believed is
the fastest depends on GPU, model and number of rows, so it is measured where drafts will be made.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import partial
from typing import Final

import torch

from slipstream.cache.kv_cache import KVCache
from slipstream.engine.plain_step import DraftStep, PlainStep
from slipstream.engine.replay_timer import replay_seconds
from slipstream.models.llama import LlamaModel

MOST_ROWS: Final = 16  # of a fast step; beyond, separate launches are as fast (docs/performance.md)
TRIED_ROWS: Final = (1, 12)  # each of another build
TRIED_CONTEXT: Final = 40  # tokens
TIMED_CONTEXT: Final = 512
TOLERANCE: Final = 0.1  # of the hidden states' norm: two right ways through 30 layers in bf16 differ by .05
_LOG = logging.getLogger(__name__)

Timer = Callable[[Callable[[], object]], float]  # seconds that the device takes for it


class StepKind(StrEnum):
    AUTO = "auto"  # for each number of rows the fastest of `AUTO_KINDS`, by measurement
    SEPARATE = "separate"  # a launch for every operation
    FUSED = "fused"  # five a layer
    PERSISTENT = "persistent"  # one


AUTO_KINDS: Final = (StepKind.FUSED,)  # beside separate; a persistent one also takes the multiprocessors from others


class StepByRows:
    """A step for up to so many rows, another for up to so many more, and the plain one beyond."""

    def __init__(self, steps: Mapping[int, DraftStep], plain: DraftStep) -> None:
        self._steps, self._plain = sorted(steps.items(), key=lambda item: item[0]), plain

    def __call__(self, token_ids: torch.Tensor, context_lens: torch.Tensor, block_tables: torch.Tensor) -> torch.Tensor:
        return self.step_for(len(token_ids))(token_ids, context_lens, block_tables)

    def step_for(self, num_rows: int) -> DraftStep:
        return next((step for most_rows, step in self._steps if num_rows <= most_rows), self._plain)

    @property
    def error(self) -> torch.Tensor | None:
        """Not 0: a result may be wrong, and this step should not be used any more."""
        errors = (getattr(step, "error", None) for _, step in self._steps)
        return next((error for error in errors if error is not None), None)


class StepTrial:
    """Tries steps on rows of its own. Nothing may be in the KV cache yet."""

    def __init__(self, plain: DraftStep, kv_cache: KVCache, max_model_len: int) -> None:
        self.plain = plain
        self._kv_cache, self._max_model_len = kv_cache, max_model_len

    def believed(self, name: str, make_fast: Callable[[], DraftStep]) -> DraftStep | None:
        """The fast step, if it does the same as the plain one."""
        try:
            fast = make_fast()
            error = max(self._difference(fast, num_rows) for num_rows in TRIED_ROWS)
        except Exception as refusal:  # Triton's errors have no class in common but this
            _LOG.warning("no %s draft steps: %s", name, str(refusal).partition("\n")[0])
            return None
        if not error <= TOLERANCE:  # a NaN is not
            _LOG.warning("no %s draft steps: they are wrong by %.3f", name, error)
            return None
        return fast

    def fastest(self, steps: Mapping[str, DraftStep], counts: Iterable[int], timer: Timer) -> StepByRows:
        """Of these and the plain one, for each of the counts of rows up to MOST_ROWS."""
        chosen: dict[int, DraftStep] = {}
        candidates = {StepKind.SEPARATE.value: self.plain, **steps}
        for num_rows in sorted({count for count in counts if count <= MOST_ROWS}):
            rows = self._rows(num_rows, TIMED_CONTEXT)
            seconds = {name: timer(partial(step, *rows)) for name, step in candidates.items()}
            best = min(seconds, key=lambda name: seconds[name])
            chosen[num_rows] = candidates[best]
            told = ", ".join(f"{name} {time * 1e3:.3f} ms" for name, time in seconds.items())
            _LOG.info("draft steps of up to %d rows are %s: %s", num_rows, best, told)
        return StepByRows(chosen, self.plain)

    @torch.inference_mode()
    def _difference(self, fast: DraftStep, num_rows: int) -> float:
        """Between the hidden states of both, relative."""
        rows = self._rows(num_rows, TRIED_CONTEXT)
        expected = self.plain(*rows).double()
        difference = fast(*rows).double() - expected
        return float((difference.norm() / expected.norm()).item())

    def _rows(self, num_rows: int, context: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Tokens, context lengths and tables. Each row has blocks of its own, if there are as many."""
        cache = self._kv_cache
        max_blocks = -(-self._max_model_len // cache.block_size)
        rows, blocks = (torch.arange(number, device=cache.keys[0].device) for number in (num_rows, max_blocks))
        contexts = (min(context, self._max_model_len) - rows).clamp_min(1)
        own_blocks = -(-context // cache.block_size)
        return rows, contexts, (rows[:, None] * own_blocks + blocks) % cache.num_blocks


def make_draft_step(
    model: LlamaModel, kv_cache: KVCache, max_model_len: int, kind: StepKind, counts: Sequence[int] = ()
) -> DraftStep:
    """What was asked for if it suits the model, else the plain step. `counts`: of rows that steps will have."""
    plain = PlainStep(model, kv_cache, max_model_len)
    if kind is StepKind.SEPARATE or not _suits(model):
        return plain
    trial = StepTrial(plain, kv_cache, max_model_len)
    makers = _makers(model, kv_cache, max_model_len)
    kinds = AUTO_KINDS if kind is StepKind.AUTO else (kind,)
    believed = {fast.value: step for fast in kinds if (step := trial.believed(fast, makers[fast])) is not None}
    if kind is StepKind.AUTO and believed:
        return trial.fastest(believed, counts, lambda run: replay_seconds(run, model.embedding.device))
    return StepByRows({MOST_ROWS: believed[kind]}, plain) if believed else plain


def _makers(model: LlamaModel, kv_cache: KVCache, max_model_len: int) -> dict[StepKind, Callable[[], DraftStep]]:
    def fused(persistent: bool) -> DraftStep:
        from slipstream.engine.fused_step import FusedStep, Ground, PersistentStep  # Triton is for GPUs only
        from slipstream.kernels.gpu.draft_step.plan import unsuited

        if (reason := unsuited(model.config)) is not None:
            raise ValueError(f"there are no kernels for this model: {reason}")
        ground = Ground.of(model, kv_cache, max_model_len)
        if not persistent:
            step = FusedStep(ground)
            with suppress(Exception):  # what was not built ahead is built when it is launched
                step.build(TRIED_ROWS, -(-max_model_len // kv_cache.block_size))
            return step
        return PersistentStep(ground, torch.cuda.get_device_properties(model.embedding.device).multi_processor_count)

    return {StepKind.FUSED: lambda: fused(False), StepKind.PERSISTENT: lambda: fused(True)}


def _suits(model: LlamaModel) -> bool:
    return model.embedding.is_cuda and model.dtype == torch.bfloat16 and model.ranks.shard.size == 1
