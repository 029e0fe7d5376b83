"""All who may draft for one sequence, and who of them does now. Knows proposers; no verifier, no client, no policy.

A drafter elsewhere that does not draft now is closed there, and costs nothing. A proposer that lives here goes on
reading what becomes final: it costs next to nothing, n-grams are scored by it, and it can begin at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gateway.control.drafting import Drafting
from gateway.proposers.proposer import LocalProposer
from gateway.proposers.remote import RemoteDrafts
from slipstream.exchange import Commit
from slipstream.proposers.ngram import NAME as NGRAM
from slipstream.request import FinishReason
from slipstream.wire.v1 import exchange_pb2


class Lineup:
    """Drafters elsewhere hear of a commit before local proposers do.

    A drafter that shares the verifier's cores is an exception: it rests while a proposer before it has drafts.
    """

    def __init__(self, proposers: Mapping[str, RemoteDrafts | LocalProposer]) -> None:
        self._remote = {name: one for name, one in proposers.items() if isinstance(one, RemoteDrafts)}
        self._local = {name: one for name, one in proposers.items() if not isinstance(one, RemoteDrafts)}
        self._way: tuple[str, ...] = ()

    def start(self, drafting: Drafting, token_ids: Sequence[int]) -> None:
        """Begin, or begin again, on a verifier that has these committed tokens and no drafts."""
        self._way = drafting.way
        for name, remote in self._remote.items():
            if name in self._way:
                remote.start(token_ids)
            else:
                remote.close()
        self._redraft_local(drafting)
        for local in self._local.values():
            local.start(token_ids)

    def redraft(self, drafting: Drafting, sequence_id: int, token_ids: Sequence[int]) -> None:
        """Another way or other bounds from now on."""
        before, self._way = self._way, drafting.way
        for name, remote in self._remote.items():
            if name in before and name in self._way:
                remote.update(drafting.update(sequence_id))
            elif name in self._way:
                remote.start(token_ids)
            elif name in before:
                remote.close()
        self._redraft_local(drafting)

    def forward(self, commit: Commit) -> None:
        for remote in self._remote.values():
            if commit.finish_reason is not FinishReason.NONE:
                remote.finish(commit)
            elif not self._may_rest(remote):
                remote.observe(commit)

    def forward_features(self, features: exchange_pb2.Features) -> None:
        for remote in self._remote.values():
            remote.forward_features(features)

    def propose(self, commit: Commit) -> None:
        for local in self._local.values():
            local.observe(commit)
        for remote in filter(self._may_rest, self._remote.values()):
            if self._local[NGRAM].has_drafts:
                remote.keep(commit)
            else:
                remote.observe(commit)

    def close(self) -> None:
        for remote in self._remote.values():
            remote.close()
        for local in self._local.values():
            local.close()

    def _redraft_local(self, drafting: Drafting) -> None:
        for name, local in self._local.items():
            num_draft_tokens = drafting.num_draft_tokens if name in drafting.way else 0
            local.redraft(num_draft_tokens, is_alone=name in drafting.way and self._is_alone(name))

    def _is_alone(self, name: str) -> bool:
        """Nobody drafts beside it, or only who rests while it has drafts."""
        others = [self._remote.get(other) for other in self._way if other != name]
        return all(other is not None and self._may_rest(other) for other in others)

    def _may_rest(self, remote: RemoteDrafts) -> bool:
        """While the drafts that the verifier takes first are made here, at no cost to it."""
        return self._way[:1] == (NGRAM,) and remote.may_rest
