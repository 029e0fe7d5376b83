"""Where an engine computes that shares its process with another one. Knows streams and math threads; no engine.

Two engines of one process launch on two streams, so that the GPU may run what both have launched side by side.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from slipstream.config import EngineConfig


@contextmanager
def own_lane(config: EngineConfig) -> Iterator[None]:
    """For the thread that enters it. What was made for the engine before is there when it begins."""
    device = torch.device(config.device)
    if device.type == "cpu":
        torch.set_num_threads(config.num_threads)  # what loading the other engine set counts for new threads
        yield
        return
    torch.cuda.synchronize(device)
    stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    with torch.cuda.device(device), torch.cuda.stream(stream):
        yield
