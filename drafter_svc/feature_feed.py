"""The target's features of one sequence, and how far they allow to feed it. Knows positions; no model, no wire.

A proposer that builds on the target feeds token t together with the feature of token t - 1: the target's where that is
here, else its own output for t - 1. So a path is fed in rows of two kinds: committed tokens whose features are here,
any number at once; then one token at a time, for each needs what the one before it gave.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from slipstream.errors import InvalidRequest
from slipstream.exchange import Features

FeatureRows = npt.NDArray[np.uint16]  # [num_tokens, size], bf16 as it came
_MAX_EARLY: Final = 256  # messages


class FeatureFeed:
    def __init__(self, size: int) -> None:
        self._size = size  # numbers of a feature; 0: this proposer needs none
        self._rows: FeatureRows = np.empty((0, size), np.uint16)  # with room at the end
        self._early: dict[int, FeatureRows] = {}  # by start
        self.count = 0  # features that are here, of the tokens from 0 on

    @property
    def is_needed(self) -> bool:
        return self._size > 0

    def add(self, features: Features) -> None:
        """Takes what is new in a message; one that is early waits. Raises InvalidRequest if it holds no whole rows."""
        if not self.is_needed:
            return
        if len(features.data) % (2 * self._size):
            raise InvalidRequest(
                f"features of {len(features.data)} bytes for sequence {features.sequence_id}; it must be a multiple of "
                f"{2 * self._size}: {self._size} bf16 numbers for each token"
            )
        if len(self._early) < _MAX_EARLY:
            self._early[features.start] = np.frombuffer(features.data, np.uint16).reshape(-1, self._size)
        for start in sorted(self._early):
            if start <= self.count:
                self._append(self._early.pop(start)[self.count - start :])

    def num_fed_by_target(self, num_committed: int) -> int:
        """Leading tokens that can be fed with the target's features; the first token of all goes in without one."""
        return min(self.count, num_committed - 1) + 1

    def most_tokens(self, start: int, end: int, num_committed: int, *, waits: bool) -> int:
        """How many tokens from `start` on, of a path that ends at `end`, one row may feed now.

        `waits`: committed tokens are fed with the target's features or not at all.
        """
        if not self.is_needed:
            return end - start
        by_target = self.num_fed_by_target(num_committed)
        if start < by_target:
            return 0 if by_target == 1 else min(end, by_target) - start
        return 0 if waits and start < num_committed else 1

    def rows_for(self, start: int, end: int, num_committed: int) -> FeatureRows | None:
        """The target's features that go in with tokens `start` to `end`; None: the proposer's own."""
        if not self.is_needed or end > self.num_fed_by_target(num_committed):
            return None
        return self._rows[max(0, start - 1) : max(0, end - 1)]

    def _append(self, new: FeatureRows) -> None:
        end = self.count + len(new)
        if end > len(self._rows):
            grown = np.empty((max(end, 2 * len(self._rows)), self._size), np.uint16)
            grown[: self.count] = self._rows[: self.count]
            self._rows = grown
        self._rows[self.count : end] = new
        self.count = end
