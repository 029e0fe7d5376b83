"""What a verifier service needs to know before it starts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from slipstream.config import EngineConfig
from slipstream.engine.prompt_pace import FixedPace, MeasuredPace, PromptPace
from slipstream.metrics.endpoint import check_address
from slipstream.telemetry.otlp import check_endpoint
from slipstream.wire.tls import ServerTls

DEFAULT_LISTEN = "127.0.0.1:50051"


@dataclass(frozen=True, kw_only=True, slots=True)
class VerifierConfig:
    """One verifier service. Raises ValueError naming field and value."""

    engine: EngineConfig
    listen: str = DEFAULT_LISTEN  # host:port, port 0 = any free one
    tls: ServerTls | None = None  # None: plaintext
    metrics_listen: str = ""  # host:port of the metrics, port 0 = any free one; empty = not shown
    otlp_endpoint: str = ""  # of the collector that gets traces; empty = there are none
    name: str = ""  # as clients call the model; empty = the name of its folder or file
    max_waiting: int = 256  # sequences that may queue for a place in the batch
    prompt_tokens_beside: int = 0  # most prompt tokens of a step in which others decode; 0 = what suits the device
    launches_ahead: bool = True  # on a GPU, while a step runs, where it can; off changes nothing but speed
    ngram_fallback: bool = True  # drafts by n-gram here when a sequence that allows it has no drafts
    trace: Path | None = None  # where to write what happened when (slipstream/timeline.py); None = nowhere
    max_queued_messages: int = 1024  # of one stream, before a gateway that does not read is cut off

    def __post_init__(self) -> None:
        check_address(self.metrics_listen)
        check_endpoint(self.otlp_endpoint)
        if self.trace is not None and not self.trace.resolve().parent.is_dir():
            raise ValueError(f"trace is {self.trace}, whose folder does not exist; make it first")
        for name, least in (("max_waiting", 0), ("prompt_tokens_beside", 0), ("max_queued_messages", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be >= {least}")

    @property
    def prompt_pace(self) -> PromptPace | None:
        """None: a step's whole budget. A CPU's steps have none to spare: on it a prompt costs by the token anyway."""
        if self.prompt_tokens_beside:
            return FixedPace(self.prompt_tokens_beside)
        return None if self.engine.device == "cpu" else MeasuredPace()

    @property
    def model_name(self) -> str:
        return self.name or self.engine.model.resolve().stem
