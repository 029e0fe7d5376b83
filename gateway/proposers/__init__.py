"""Who drafts for a sequence, as the gateway sees it: one file each, and the factory."""

from gateway.policy.tenants import TRITONSERVER
from gateway.proposers.lineup import Lineup
from gateway.proposers.ngram import NgramDrafts
from gateway.proposers.proposer import LocalProposer, Proposer
from gateway.proposers.remote import RemoteDrafts
from gateway.proposers.surroundings import DrafterPool, Surroundings
from gateway.proposers.tritonserver import TritonServerDrafts
from slipstream.proposers.ngram import NAME as NGRAM

__all__ = ["DrafterPool", "Lineup", "Proposer", "Surroundings", "make_proposer"]


def make_proposer(name: str, around: Surroundings) -> RemoteDrafts | LocalProposer:
    """One that lives here, or one that a drafter service is asked for by this name."""
    request = around.current()
    if name == NGRAM:
        return NgramDrafts(
            request.sequence_id,
            request.num_draft_tokens,
            around.send,
            index=around.index,
            on_trial=around.on_trial,
        )
    if name == TRITONSERVER and around.tritonserver is not None:
        return TritonServerDrafts(
            request.sequence_id,
            request.num_draft_tokens,
            around.tritonserver,
            around.vocab_size,
            around.send,
            around.record,
        )
    if name == TRITONSERVER:
        around.complaints.once("a policy names tritonserver, and none is known; start the gateway with --tritonserver")
    return RemoteDrafts(name, around)
