"""What the verifier itself drafts for one sequence: forced text, n-grams. Knows committed tokens only."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from slipstream.exchange import DraftToken, LawKind
from slipstream.proposers.ngram import NAME as NGRAM
from slipstream.proposers.ngram import NgramProposer
from slipstream.request import SequenceRequest
from verifier_svc.draft_tree import DraftPath
from verifier_svc.guide import NAME as GRAMMAR
from verifier_svc.guide import Guide


class LocalDrafts:
    def __init__(self, request: SequenceRequest, proposers: Collection[str], guide: Guide | None = None) -> None:
        """`proposers`: those that this service has, by name."""
        self._others = frozenset(request.proposers) - frozenset(proposers)
        self._ngram = NgramProposer() if NGRAM in proposers and NGRAM in request.proposers else None
        self.guide = guide
        self._forced = guide if GRAMMAR in proposers else None

    @property
    def waits_for_others(self) -> bool:
        return bool(self._others)

    def is_others(self, path: DraftPath) -> bool:
        """Whether someone drafted it who may have to be waited for."""
        return path.proposer in self._others

    @property
    def can_draft(self) -> bool:
        return self._ngram is not None or self._forced is not None

    def come_first(self, num_tokens: int) -> bool:
        """Whether they are worth more than what others draft: forced text fills at least half of a pass.

        A fact of committed tokens and K, so that no draft's content decides whose path is checked.
        """
        return self._forced is not None and 0 < num_tokens <= 2 * len(self._forced.forced_tokens)

    def path(self, num_tokens: int, committed: Sequence[int]) -> DraftPath:
        if num_tokens == 0:
            return DraftPath()
        if self._forced is not None and (forced := self._forced.forced_tokens[:num_tokens]):
            return _one_hot(GRAMMAR, forced)
        if self._ngram is None:
            return DraftPath()
        self._ngram.extend(committed[len(self._ngram) :])
        return _one_hot(NGRAM, self._ngram.propose(num_tokens))


def _one_hot(proposer: str, token_ids: Sequence[int]) -> DraftPath:
    tokens = tuple(DraftToken(token_id, LawKind.ONE_HOT) for token_id in token_ids)
    return DraftPath(proposer, tokens) if tokens else DraftPath()
