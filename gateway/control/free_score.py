"""Scores an n-gram index against tokens that become final, at no cost to anyone. Knows an index; no verifier.

It plays the passes that the index would have had: predict, see how many tokens come true, take the token after them,
predict again. Only committed tokens are looked at, so whoever decides by the scores has seen nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from gateway.control.evidence import Trial

OnTrial = Callable[[Trial], None]


class Index(Protocol):
    """What was said before, and what followed it."""

    def __len__(self) -> int:
        """Tokens of this sequence so far."""

    @property
    def match_length(self) -> int:
        """How many of the last tokens stood somewhere before; 0 if too few to propose anything."""

    def extend(self, token_ids: Sequence[int]) -> None:
        """Tokens became final."""

    def propose(self, num_tokens: int) -> tuple[int, ...]:
        """What followed the best match."""


class FreeScore:
    def __init__(self, index: Index, num_tokens: int, long_match: int, on_trial: OnTrial) -> None:
        self._index = index
        self._num_tokens = num_tokens  # of one prediction
        self._long_match = long_match
        self._on_trial = on_trial
        self._path: tuple[int, ...] = ()
        self._num_right = 0
        self._is_long = False

    def start(self, token_ids: Sequence[int]) -> None:
        """The committed prefix."""
        self._index.extend(token_ids)
        self._predict()

    def observe(self, token_ids: Sequence[int]) -> None:
        for token_id in token_ids:
            is_over = not self._comes_true(token_id)
            self._index.extend((token_id,))
            if is_over:
                self._on_trial(Trial(len(self._path), self._num_right, self._is_long))
                self._predict()

    def _comes_true(self, token_id: int) -> bool:
        if self._path[self._num_right : self._num_right + 1] != (token_id,):
            return False
        self._num_right += 1
        return True

    def _predict(self) -> None:
        self._path = self._index.propose(self._num_tokens)
        self._is_long = bool(self._path) and self._index.match_length >= self._long_match
        self._num_right = 0
