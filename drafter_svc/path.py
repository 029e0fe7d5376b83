"""One path of draft tokens after a committed prefix, and the KV computed for both. Knows no other paths, no model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from drafter_svc.proposers.proposer import Proposal
from slipstream.cache.block_table import BlockTable
from slipstream.exchange import DraftToken, LawKind


@dataclass(slots=True, eq=False)
class Path:
    table: BlockTable
    draw: int  # Draft.draw of the tokens being drawn
    goal: int = 0  # tokens it is to have
    num_computed: int = 0  # positions from 0 on whose KV the table holds
    num_by_target: int = 0  # of those, how many from 0 on were computed from the target's features, if they are needed
    num_shared: int = 0  # leading tokens that are also the trunk's; the next one is the guessed outcome
    num_sent: int = 0  # leading tokens that the verifier knows or will have when this path matters
    probability: float = 1.0  # that it comes true
    confidence: float = 1.0  # that all tokens drawn since the last commit stand
    tokens: list[DraftToken] = field(default_factory=list)
    outcomes: list[tuple[int, ...]] = field(default_factory=list)  # [i] at token i; perhaps one past the last token

    @property
    def is_complete(self) -> bool:
        return len(self.tokens) >= self.goal

    @property
    def has_unsent(self) -> bool:
        return self.num_sent < len(self.tokens)

    def take(self, proposals: Sequence[Proposal], stop_below: float = 0.0) -> None:
        """Adds drawn tokens up to the goal; past it only the outcomes of the next position are of use.

        The token that brings confidence below `stop_below` is the last one, and becomes part of the path itself.
        """
        for proposal in proposals:
            self.outcomes[len(self.tokens) :] = [proposal.outcomes]
            if self.is_complete:
                return
            self.tokens.append(proposal.token)
            self.confidence *= proposal.confidence
            if self.confidence < stop_below:
                self.goal = len(self.tokens)

    def send(self) -> tuple[DraftToken, ...]:
        """All tokens, those that are known already as assumed ones."""
        known = [DraftToken(token.token_id, LawKind.ASSUMED) for token in self.tokens[: self.num_sent]]
        drawn = self.tokens[self.num_sent :]
        self.num_sent = len(self.tokens)
        return (*known, *drawn)

    def common_length(self, token_ids: Sequence[int]) -> int:
        """How many of the first `token_ids` are this path's."""
        for i, (own, other) in enumerate(zip(self.tokens, token_ids, strict=False)):
            if own.token_id != other:
                return i
        return min(len(self.tokens), len(token_ids))

    def is_guessed(self, position: int) -> bool:
        """Whether the token there is a guess, or the trunk's; false past the end."""
        return position < len(self.tokens) and self.tokens[position].kind is LawKind.ASSUMED

    def advance(self, count: int) -> None:
        """The first `count` tokens are committed."""
        self.confidence = 1.0
        del self.tokens[:count]
        del self.outcomes[:count]
        self.goal = max(0, self.goal - count)
        self.num_shared = max(0, self.num_shared - count)
        self.num_sent = max(0, self.num_sent - count)

    def candidates(self, position: int) -> tuple[int, ...]:
        """Likely outcomes at a position that lead away from this path."""
        if position >= len(self.outcomes):
            return ()
        own = self.tokens[position].token_id if position < len(self.tokens) else None
        return tuple(token_id for token_id in self.outcomes[position] if token_id != own)

    def release(self) -> None:
        """Gives the KV back; the tokens stay."""
        self.table.release()
        self.num_computed = self.num_by_target = 0


def submitted_next(alive: Sequence[Path], num_new: int) -> Path | None:
    """Of paths that agree with `num_new` tokens that are to be committed, the one that the verifier submits next.

    A trunk may have been extended by what a branch had guessed; then the branch's tokens were drawn first, and the
    verifier goes by the order of draws.
    """
    drawn = [path for path in alive if len(path.tokens) > num_new and not path.is_guessed(num_new)]
    ended = [path for path in alive if len(path.tokens) == num_new]
    found = drawn or ended
    return found[-1] if found else None
