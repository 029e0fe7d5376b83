"""Where steps under way leave what they decided: a place on the host and an event each. Knows two steps at most."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

NUM_PLACES = 2  # a step and the one launched behind it


class Result:
    """Of one step, until its place is used again two steps later.

    Waiting spins outside the interpreter's lock: a thread that sleeps takes longer to wake than a step's bookkeeping.
    """

    def __init__(self, decided: torch.Tensor, *, timed: bool) -> None:
        """`timed`: the GPU's time can be asked for, at the price of one more call into the driver."""
        self._decided = decided  # [most_seqs, 2] int32, on the device
        on_gpu = decided.is_cuda
        self._on_host = torch.zeros_like(decided, device="cpu", pin_memory=on_gpu)
        self.numbers: npt.NDArray[np.int32] = self._on_host.numpy()  # [most_seqs, 2], once it has been waited for
        self._start = _event(timed) if on_gpu else None
        self._end = _event(timed) if on_gpu else None
        self._timed = timed and on_gpu

    def start(self) -> None:
        """The step is about to be launched."""
        if self._timed and self._start is not None:
            self._start.record()

    def read(self) -> None:
        """The step is launched; what it decides will be copied."""
        self._on_host.copy_(self._decided, non_blocking=True)
        if self._end is not None:
            self._end.record()

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to wait for any more, where that can be asked."""
        return self._end is not None and bool(self._end.query())  # type: ignore[no-untyped-call]

    def wait(self) -> None:
        if self._end is not None:
            self._end.synchronize()

    @property
    def seconds(self) -> float | None:
        """That the GPU took, if that is known."""
        if not self._timed or self._start is None or self._end is None:
            return None
        return float(self._start.elapsed_time(self._end)) * 1e-3


def _event(timed: bool) -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=timed)  # type: ignore[no-untyped-call]


class ResultRing:
    def __init__(self, decided: torch.Tensor, *, timed: bool) -> None:
        self._places = [Result(decided, timed=timed) for _ in range(NUM_PLACES)]
        self._next = 0

    def take(self) -> Result:
        """The place for the next step; the step before the last one must have been read."""
        self._next = (self._next + 1) % NUM_PLACES
        return self._places[self._next]
