"""Which outcomes of the next verify pass are worth drafting for. Knows committed history; sees no drafted token.

That blindness is part of exactness in ratio mode: were outcomes chosen by the confidence of tokens that may yet be
discarded, the choice would have seen noise that later decides tokens. So the share of each position follows from what
was committed before; only which tokens stand at a position's ranks follows from the draft up to there.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

MAX_RANKS: Final = 8
_DECAY: Final = 0.98  # per pass: about the last fifty count
_PRIOR_WEIGHT: Final = 8.0  # passes that the cold start is worth
_COLD_ACCEPTANCE: Final = 0.7
_COLD_HIT: Final = {False: 0.45, True: 0.7}  # first guess right: at a rejection, as a bonus token


@dataclass(frozen=True, slots=True)
class Outcome:
    """`num_accepted` draft tokens are accepted, then comes the likely token of this rank."""

    num_accepted: int
    rank: int
    probability: float


@dataclass(slots=True)
class _Rate:
    hits: float = 0.0
    trials: float = 0.0

    def add(self, hit: bool) -> None:
        self.hits = self.hits * _DECAY + hit
        self.trials = self.trials * _DECAY + 1

    def estimate(self, prior: float) -> float:
        return (self.hits + _PRIOR_WEIGHT * prior) / (self.trials + _PRIOR_WEIGHT)


@dataclass(slots=True)
class OutcomeHistory:
    """How the passes of one sequence ended. One sequence only: another one may share its noise."""

    _overall: _Rate = field(default_factory=_Rate)
    _by_position: defaultdict[int, _Rate] = field(default_factory=lambda: defaultdict(_Rate))
    _by_rank: defaultdict[tuple[bool, int], _Rate] = field(default_factory=lambda: defaultdict(_Rate))

    def observe_pass(self, num_accepted: int, num_draft_tokens: int) -> None:
        for position in range(min(num_accepted + 1, num_draft_tokens)):
            accepted = position < num_accepted
            self._overall.add(accepted)
            self._by_position[position].add(accepted)

    def observe_outcome(self, is_bonus: bool, rank: int | None) -> None:
        """At which rank the token after the accepted ones stood; None if at none."""
        for candidate in range(MAX_RANKS):
            self._by_rank[is_bonus, candidate].add(candidate == rank)

    def acceptance(self, position: int) -> float:
        return self._by_position[position].estimate(self._overall.estimate(_COLD_ACCEPTANCE))

    def rank_outcomes(self, num_draft_tokens: int, count: int) -> list[Outcome]:
        """The `count` likeliest outcomes of a pass with `num_draft_tokens`, likeliest first."""
        found: list[tuple[float, int, int]] = []
        by_rank = [[self._rank_probability(is_bonus, rank) for rank in range(MAX_RANKS)] for is_bonus in (False, True)]
        reached = 1.0
        for position in range(num_draft_tokens + 1):
            is_bonus = position == num_draft_tokens
            accepted = 0.0 if is_bonus else self.acceptance(position)
            ends_here = reached * (1 - accepted)
            found += [(ends_here * here, position, rank) for rank, here in enumerate(by_rank[is_bonus])]
            reached *= accepted
        found.sort(key=lambda outcome: -outcome[0])
        return [Outcome(position, rank, probability) for probability, position, rank in found[:count]]

    def _rank_probability(self, is_bonus: bool, rank: int) -> float:
        first = _COLD_HIT[is_bonus]
        return self._by_rank[is_bonus, rank].estimate(first * (1 - first) ** rank)
