"""When steps will probably end, from how long those of their size took. Knows sizes and a clock."""

from __future__ import annotations

import math
import time
from typing import Final

from slipstream.engine.buckets import Bucket

SOONER: Final = 0.7  # of the time after which a step was looked for in vain: else a time too long would confirm itself


class StepTimes:
    """Times are those of time.monotonic()."""

    def __init__(self) -> None:
        self.expected_end = 0.0  # of what was launched last; long ago where that is not known
        self._seconds: dict[Bucket, float] = {}
        self._ended = 0.0  # the step before
        self._num_under_way = 0

    def launched(self, bucket: Bucket) -> float:
        """Gives the time, which `ended` wants to know."""
        now = time.monotonic()
        begins = max(now, self.expected_end) if self._num_under_way else now
        self._num_under_way += 1
        self.expected_end = begins + self._seconds.get(bucket, 0.0)
        return now

    def ended(self, bucket: Bucket, launched: float, *, unseen: bool = False) -> None:
        """`unseen`: it was over before anyone looked, so that nobody knows for how long it ran."""
        now = time.monotonic()
        if unseen:
            self._seconds[bucket] = SOONER * min(now - launched, self._seconds.get(bucket, math.inf))
        else:
            self.note(bucket, now - max(launched, self._ended))
        self._ended = now
        self._num_under_way -= 1

    def note(self, bucket: Bucket, seconds: float) -> None:
        """A shorter time is believed at once: a longer one may have been the host's delay."""
        known = self._seconds.get(bucket, seconds)
        self._seconds[bucket] = min(seconds, known + (seconds - known) / 4)

    def seconds(self, bucket: Bucket) -> float:
        """0 where no step of the size has ended."""
        return self._seconds.get(bucket, 0.0)
