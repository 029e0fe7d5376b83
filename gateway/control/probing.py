"""When to try again a proposer that does not draft now. Knows passes that were counted; no proposer, no clock."""

from __future__ import annotations

from typing import Final

FIRST_TRY: Final = 16  # passes before the first
FIRST_INTERVAL: Final = 64  # passes between two tries
LAST_INTERVAL: Final = 1024
PROBE_PASSES: Final = 8  # of one request; the others go on as before
MOST_COST: Final = 0.005  # of all that a verifier gives


class Probing:
    """Of one group. A try that changes nothing doubles the time to the next; after one that does it is short again."""

    def __init__(self) -> None:
        self._interval = FIRST_INTERVAL
        self._left = FIRST_TRY
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


class Allowance:
    """What tries may cost all groups of a verifier together: what one has cost must be earned before the next."""

    def __init__(self) -> None:
        self._debt = 0.0  # whole steps

    @property
    def is_earned(self) -> bool:
        return self._debt <= 0

    def note_pass(self, share: float) -> None:
        """Of a request that tries may be made for; the share that a pass has in its step."""
        self._debt -= MOST_COST * share

    def note_try(self, steps: float, share: float) -> None:
        """In so many steps this share of what all would have got was lost."""
        self._debt = max(0.0, self._debt) + steps * share
