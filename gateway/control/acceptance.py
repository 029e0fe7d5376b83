"""How many draft tokens stand, position by position, from passes whose tokens are final. Knows counts; no proposer."""

from __future__ import annotations

from functools import partial
from typing import Final

from gateway.control.rate import Rate

COLD_RATE: Final = 0.7  # before anything was checked


class Acceptance:
    """The rate of a position is over passes in which all before it stood.

    A position's rate is drawn towards that of `parent` there (a request's towards its tenant's), or without a parent
    towards the rate over all positions.
    """

    def __init__(self, *, decay: float, weight: float, parent: Acceptance | None = None) -> None:
        self._parent = parent
        self._overall = Rate(decay, weight, lasting=parent is not None)
        self._new_rate = partial(Rate, decay, weight)
        self._by_position: list[Rate] = []  # as many as were reached
        self.drafted = Rate(decay, 0.0)  # its mean is accepted / drafted, once there are trials

    def add(self, num_accepted: int, num_draft_tokens: int) -> None:
        reached = min(num_accepted + 1, num_draft_tokens)
        self._by_position += [self._new_rate() for _ in range(reached - len(self._by_position))]
        for position in range(reached):
            accepted = float(position < num_accepted)
            self._overall.add(accepted)
            self._by_position[position].add(accepted)
        if num_draft_tokens:
            self.drafted.add(num_accepted / num_draft_tokens)

    def fade(self) -> None:
        """A pass went by without drafts."""
        for rate in (self._overall, self.drafted, *self._by_position):
            rate.fade()

    def fade_to(self, passes: float) -> None:
        """What was seen is old: it counts for no more than so many passes."""
        for rate in (self._overall, self.drafted, *self._by_position):
            rate.fade_to(passes)

    def rate(self, position: int) -> float:
        expected = self._overall.mean(COLD_RATE) if self._parent is None else self._parent.rate(position)
        return self._by_position[position].mean(expected) if position < len(self._by_position) else expected

    def rates(self, num_positions: int) -> tuple[float, ...]:
        return tuple(self.rate(position) for position in range(num_positions))
