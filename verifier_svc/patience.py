"""How long waiting for drafts pays, from what one sequence's passes cost and brought. Knows committed history only.

That blindness is part of exactness (docs/exactness.md): a bound that had seen discarded drafts could steer what follows
them. Accepted counts and times are of passes whose tokens are final.
"""

from __future__ import annotations

import math
from typing import Final

_DECAY: Final = 0.9  # per pass: about the last ten count
_COLD_ACCEPTED: Final = 2.0  # draft tokens, before any were checked
_COLD_PASSES: Final = 4  # that this is worth
_MOST_PASSES: Final = 40  # that count: over ten, what is accepted varies by half, and waits that pay are given up


class Patience:
    """A pass without drafts brings one token and costs a pass. One with drafts brings `accepted` more.

    Waiting w for them pays while (1 + accepted) / (w + pass) > 1 / pass, so while w < accepted * pass; and as often as
    waits end without drafts, by so much less. What comes in time by itself counts as a wait that paid, so that patience
    with a drafter that has become faster returns.
    """

    def __init__(self) -> None:
        self._pass_seconds: float | None = None
        self._accepted = _COLD_ACCEPTED  # of them, per pass that had some
        self._num_drafted = _COLD_PASSES
        self._served = 1.0  # share of passes that had some, among those that could have used some

    @property
    def seconds(self) -> float:
        """No bound before the first pass was measured: then it is the gateway's alone."""
        return math.inf if self._pass_seconds is None else self.gain * self._pass_seconds

    @property
    def gain(self) -> float:
        """Tokens that a pass brings beyond one if its drafts are waited for."""
        return self._served * self._accepted

    @property
    def pass_seconds(self) -> float:
        """0 before the first was measured."""
        return self._pass_seconds or 0.0

    def note_pass(self, seconds: float) -> None:
        """One decoding pass took so long, whatever it checked."""
        self._pass_seconds = _mix(seconds if self._pass_seconds is None else self._pass_seconds, seconds)

    def note_drafts(self, num_accepted: int) -> None:
        """It checked drafts such as are waited for."""
        self._served = _mix(self._served, 1.0)
        self._num_drafted = min(self._num_drafted + 1, _MOST_PASSES)
        self._accepted += (num_accepted - self._accepted) / self._num_drafted

    def note_none(self) -> None:
        """It could have checked some, and there were none."""
        self._served = _mix(self._served, 0.0)


def _mix(mean: float, value: float) -> float:
    return _DECAY * mean + (1 - _DECAY) * value
