"""What a second of drafting elsewhere adds to the pass that runs meanwhile. Knows measured times; no proposer.

Nothing, where a drafter has a device of its own. On cores that it shares with the verifier the pass becomes longer, and
by more than it drafts where the verifier's threads wait for one another.
"""

from __future__ import annotations

from math import sqrt
from typing import Final

_FORGETS: Final = 1.02  # by how much less sure it is after each measurement: prices change


class Price:
    """A running estimate, the surer the longer was drafted in the passes that were measured (a Kalman filter)."""

    def __init__(self, spread: float) -> None:
        """`spread`: about as much it may be, before anything was measured."""
        self._mean = 0.0
        self._most = self._variance = spread**2
        self.is_known = False

    @property
    def mean(self) -> float:
        return max(0.0, self._mean)

    @property
    def cautious(self) -> float:
        """A standard error more: what is hardly known is not trusted to be cheap."""
        return self.mean + sqrt(self._variance)

    def note(self, drafting: float, seconds: float, noise: float) -> None:
        """While somebody drafted for so long, a pass took so much longer than usual; they scatter by `noise` anyway."""
        gain = self._variance * drafting / (self._variance * drafting**2 + noise**2)
        self._mean += gain * (seconds - self._mean * drafting)
        self._variance = min(self._most, self._variance * (1 - gain * drafting) * _FORGETS)
        self.is_known = True
