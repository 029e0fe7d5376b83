"""How long calls take: a share for each token asked for, and the rest for the call itself. Knows measured times."""

from __future__ import annotations

from typing import Final

_DECAY: Final = 0.95  # of a call, for each that follows


class CallTimes:
    """The line of least squares through the last twenty calls or so, by tokens asked for.

    While all ask for equally many, nothing tells the shares apart, and all time is the call's.
    """

    def __init__(self) -> None:
        self._calls = self._tokens = self._seconds = self._squares = self._products = 0.0

    def note(self, num_tokens: int, seconds: float) -> None:
        self._calls = _DECAY * self._calls + 1
        self._tokens = _DECAY * self._tokens + num_tokens
        self._seconds = _DECAY * self._seconds + seconds
        self._squares = _DECAY * self._squares + num_tokens**2
        self._products = _DECAY * self._products + num_tokens * seconds

    def seconds_of_tokens(self, num_tokens: int, seconds: float) -> float:
        """How much of a call of so many seconds went into its tokens."""
        spread = self._calls * self._squares - self._tokens**2
        if spread <= self._calls:  # they differ by less than a token, or there were none
            return 0.0
        each = (self._calls * self._products - self._tokens * self._seconds) / spread
        return min(max(0.0, each * num_tokens), seconds)
