"""How full a peer is, from what it says and what was opened there. Knows counts and a clock; no link, no message."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from slipstream.exchange import ModelInfo, StepReport

SLOW_START_SECONDS: Final = 10.0
LEAST_SHARE: Final = 0.1  # of the sequences that others get, right after it came
_FULL_KV: Final = 0.9  # used / total; beyond it sequences are preempted soon


class PeerLoad:
    """A peer's own count is older than ours and holds ours: what it had beyond ours are others' sequences."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._came_at = clock()
        self._num_others = 0
        self._num_waiting = 0
        self._kv_share = 0.0

    def note_arrival(self) -> None:
        """It can be used from now on; what it said before is no longer true."""
        self._came_at = self._clock()
        self._num_others = self._num_waiting = 0
        self._kv_share = 0.0

    def note_model(self, info: ModelInfo, num_ours: int) -> None:
        self._num_others = max(0, info.num_sequences - num_ours)
        self._kv_share = _share(info.kv_blocks_used, info.kv_blocks_total)

    def note_step(self, step: StepReport, num_ours: int) -> None:
        self._num_others = max(0, step.num_running + step.num_waiting - num_ours)
        self._num_waiting = step.num_waiting
        self._kv_share = _share(step.kv_blocks_used, step.kv_blocks_total)

    def cost(self, num_ours: int) -> tuple[bool, float]:
        """Smaller is better: who has a queue or little memory left comes last, the others by their sequences.

        A peer that has just come has cold caches and perhaps others rushing at it: for a while it counts each sequence
        several times.
        """
        is_short = (self._num_waiting > 0 and num_ours > 0) or self._kv_share > _FULL_KV
        return is_short, (num_ours + self._num_others + 1) / self._weight()

    def _weight(self) -> float:
        return min(1.0, max(LEAST_SHARE, (self._clock() - self._came_at) / SLOW_START_SECONDS))


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
