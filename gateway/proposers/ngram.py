"""N-gram drafts of one sequence, made in the gateway itself. Knows committed tokens; no peer."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.proposers.proposer import SendDraft
from slipstream.exchange import Commit, Draft, DraftToken, LawKind
from slipstream.proposers.ngram import MAX_MATCH, MIN_MATCH, NAME, NgramProposer
from slipstream.wire.codec import draft_to_wire

LONG_MATCH = MAX_MATCH - 1  # beside another proposer: a shorter match is right less often than a draft model


class NgramDrafts:
    """Keeps 2K + 1 tokens ahead: after a pass that accepts K and adds one, the verifier has K more in its tree."""

    def __init__(self, sequence_id: int, num_draft_tokens: int, send: SendDraft, *, min_match: int = MIN_MATCH) -> None:
        self._sequence_id = sequence_id
        self._path_length = 2 * num_draft_tokens + 1
        self._send = send
        self._index = NgramProposer(min_match=min_match)
        self._ahead: tuple[int, ...] = ()  # what the verifier's tree holds after the committed prefix
        self._draw = 0

    @property
    def has_drafts(self) -> bool:
        """Whether the verifier has some of them for the next pass."""
        return bool(self._ahead)

    def start(self, token_ids: Sequence[int]) -> None:
        self._index.extend(token_ids[len(self._index) :])
        self._ahead = ()
        self._draft()

    def observe(self, commit: Commit) -> None:
        known = len(self._index) - commit.base  # 0, unless a move in between started from these tokens
        self._index.extend(commit.token_ids[known:])
        self._ahead = _remainder(self._ahead, commit.token_ids)
        self._draft()

    def close(self) -> None:
        """Nothing is held anywhere else."""

    def _draft(self) -> None:
        if len(self._ahead) >= self._path_length:
            return
        path = self._index.propose(self._path_length)
        if path and path != self._ahead[: len(path)]:
            self._ahead = path
            self._send(draft_to_wire(self._as_draft(path)))
            self._draw += 1

    def _as_draft(self, path: tuple[int, ...]) -> Draft:
        tokens = tuple(DraftToken(token_id, LawKind.ONE_HOT) for token_id in path)
        return Draft(self._sequence_id, len(self._index), NAME, self._draw, tokens)


def _remainder(path: tuple[int, ...], committed: tuple[int, ...]) -> tuple[int, ...]:
    """What of the path is left after these tokens, nothing if they went another way."""
    return path[len(committed) :] if path[: len(committed)] == committed else ()
