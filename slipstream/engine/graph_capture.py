"""Turns functions that only launch GPU work into graphs. Knows their memory, not what they compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch

Replay = Callable[[], None]


class Capture(Protocol):
    @property
    def num_bytes(self) -> int:
        """Device memory that the graphs hold."""

    @property
    def is_full(self) -> bool:
        """Whether no more of them should be made."""

    def capture(self, run: Callable[[], None]) -> Replay:
        """What does the same as `run` when it is called, on what then lies in the same tensors."""


class GraphCapture:
    """Captures CUDA graphs that share their memory: no two may run at once, and none may hand a tensor on in it."""

    def __init__(self, device: torch.device, limit_bytes: int) -> None:
        self._device, self._limit = device, limit_bytes
        self._pool = torch.cuda.graph_pool_handle()
        # Its own, for torch keeps cuBLAS' workspace by it, and two engines of one process must not share one.
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.num_bytes = 0

    @property
    def is_full(self) -> bool:
        return self.num_bytes >= self._limit

    def capture(self, run: Callable[[], None]) -> Replay:
        run()  # compiles kernels and lets libraries allocate, which a capture cannot
        torch.cuda.synchronize(self._device)
        free = torch.cuda.mem_get_info(self._device)[0]
        graph = torch.cuda.CUDAGraph()
        # Of this thread alone: the collectives' own threads may call CUDA meanwhile.
        with torch.cuda.graph(graph, pool=self._pool, stream=self._stream, capture_error_mode="thread_local"):
            run()
        self.num_bytes += max(0, free - torch.cuda.mem_get_info(self._device)[0])
        replay: Replay = graph.replay
        return replay
