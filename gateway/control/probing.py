"""When to try again a proposer that does not draft now. Knows passes that were counted; no proposer, no clock."""

from __future__ import annotations

from typing import Final

FIRST_INTERVAL: Final = 64  # passes between two tries
LAST_INTERVAL: Final = 1024
PROBE_PASSES: Final = 12  # of one request; the others go on as before


class Probing:
    """A try that changes nothing doubles the time to the next; one that does starts again from the beginning."""

    def __init__(self) -> None:
        self._interval = FIRST_INTERVAL
        self._left = FIRST_INTERVAL
        self._num_tries = 0

    def is_due(self) -> bool:
        """Counts one pass."""
        self._left -= 1
        return self._left <= 0

    def turn(self, num_candidates: int) -> int:
        """Whose turn it is among so many."""
        self._num_tries += 1
        return (self._num_tries - 1) % num_candidates

    def note_end(self, *, changed: bool) -> None:
        self._interval = FIRST_INTERVAL if changed else min(2 * self._interval, LAST_INTERVAL)
        self._left = self._interval
