"""N-gram drafts of one sequence, made in the gateway itself. Knows committed tokens; no peer."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.control.free_score import FreeScore, Index, OnTrial
from gateway.proposers.one_hot import one_hot, remainder
from gateway.proposers.proposer import SendDraft
from slipstream.exchange import Commit, Draft
from slipstream.proposers.ngram import MAX_MATCH, MIN_MATCH, NAME, NgramProposer
from slipstream.wire.drafts import draft_to_wire

# Beside a drafter that works while the verifier does: a shorter match is right less often than its model. Where both
# take turns, a draft that is there at once is worth more than a better one (docs/performance.md).
LONG_MATCH = MAX_MATCH - 1
SCORED_TOKENS = 8  # of one prediction


class NgramDrafts:
    """Keeps 2K + 1 tokens ahead: after a pass that accepts K and adds one, the verifier has K more in its tree.

    Whether it drafts depends on the length of its match, a function of the committed tokens alone.
    """

    def __init__(
        self,
        sequence_id: int,
        num_draft_tokens: int,
        send: SendDraft,
        *,
        index: Index | None = None,  # one of its own if not given
        on_trial: OnTrial | None = None,  # called with how good it is, also while it does not draft
    ) -> None:
        self._sequence_id = sequence_id
        self._path_length = 2 * num_draft_tokens + 1
        self._send = send
        self._min_match = MIN_MATCH
        self._index: Index = NgramProposer(min_match=MIN_MATCH) if index is None else index
        self._score = FreeScore(self._index, SCORED_TOKENS, LONG_MATCH, on_trial) if on_trial else None
        self._ahead: tuple[int, ...] = ()  # what the verifier's tree holds after the committed prefix
        self._draw = 0

    @property
    def has_drafts(self) -> bool:
        """Whether the verifier has some of them for the next pass."""
        return bool(self._ahead)

    def start(self, token_ids: Sequence[int]) -> None:
        new = token_ids[len(self._index) :]
        if self._score is not None and not len(self._index):
            self._score.start(new)
        else:
            self._read(new)
        self._ahead = ()
        self._draft()

    def observe(self, commit: Commit) -> None:
        known = len(self._index) - commit.base  # 0, unless a move in between started from these tokens
        self._read(commit.token_ids[known:])
        self._ahead = remainder(self._ahead, commit.token_ids)
        self._draft()

    def redraft(self, num_draft_tokens: int, *, is_alone: bool) -> None:
        """Another K from now on, 0 to be silent; not alone, it drafts on long matches only."""
        self._path_length = 2 * num_draft_tokens + 1 if num_draft_tokens else 0
        self._min_match = MIN_MATCH if is_alone else LONG_MATCH
        if not num_draft_tokens:
            self._ahead = ()
        elif len(self._index):
            self._draft()

    def close(self) -> None:
        """Nothing is held anywhere else."""

    def _draft(self) -> None:
        if len(self._ahead) >= self._path_length:
            return
        if self._index.match_length < self._min_match:
            return
        path = self._index.propose(self._path_length)
        if path and path != self._ahead[: len(path)]:
            self._ahead = path
            self._send(draft_to_wire(self._as_draft(path)))
            self._draw += 1

    def _read(self, token_ids: Sequence[int]) -> None:
        if self._score is None:
            self._index.extend(token_ids)
        else:
            self._score.observe(token_ids)

    def _as_draft(self, path: tuple[int, ...]) -> Draft:
        return Draft(self._sequence_id, len(self._index), NAME, self._draw, one_hot(path))
