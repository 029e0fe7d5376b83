"""How long a GPU takes for something that only launches work, without the host's part. Knows not what it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import torch

from slipstream.engine.graph_capture import GraphCapture

REPLAYS: Final = 8


@torch.inference_mode()
def replay_seconds(run: Callable[[], object], device: torch.device) -> float:
    """The shortest of some replays of its graph: others may use the GPU meanwhile."""

    def captured() -> None:
        run()

    replay = GraphCapture(device, limit_bytes=0).capture(captured)
    return min(_seconds(replay) for _ in range(REPLAYS))


def _seconds(replay: Callable[[], None]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    replay()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * 1e-3
