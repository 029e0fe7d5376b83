"""Where an engine computes that shares its process with another one. Knows streams and math threads; no engine.

Two engines of one process launch on two streams, so that the GPU may run what both have launched side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

import torch

from slipstream.config import EngineConfig


class OwnLane:
    """For the thread that enters it. What was made for the engine before is there when the first one does."""

    def __init__(self, config: EngineConfig) -> None:
        self._config = config
        self._device = torch.device(config.device)

    @contextmanager
    def __call__(self) -> Iterator[None]:
        if self._device.type == "cpu":
            torch.set_num_threads(self._config.num_threads)  # what loading the other engine set counts for new threads
            yield
            return
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            yield

    @cached_property
    def _stream(self) -> torch.cuda.Stream:
        torch.cuda.synchronize(self._device)
        return torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
