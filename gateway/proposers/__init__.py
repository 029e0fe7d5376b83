"""Who drafts for a sequence, as the gateway sees it: one file each, and the factory."""

from collections.abc import Callable

from gateway.ledger import Ledger
from gateway.proposers.ngram import LONG_MATCH, NgramDrafts
from gateway.proposers.proposer import Proposer, SendDraft
from gateway.proposers.remote import Complaints, DrafterPool, RemoteDrafts
from slipstream.proposers.ngram import MIN_MATCH
from slipstream.proposers.ngram import NAME as NGRAM
from slipstream.request import SequenceRequest

__all__ = ["Complaints", "DrafterPool", "NgramDrafts", "Proposer", "RemoteDrafts", "SendDraft", "make_proposer"]


def make_proposer(
    name: str,
    current: Callable[[], SequenceRequest],
    send: SendDraft,
    drafters: DrafterPool,
    ledger: Ledger,
    complaints: Complaints,
) -> Proposer:
    """The n-gram proposer, or one that a drafter service is asked for by this name."""
    if name == NGRAM:
        request = current()
        min_match = LONG_MATCH if len(request.proposers) > 1 else MIN_MATCH
        return NgramDrafts(request.sequence_id, request.num_draft_tokens, send, min_match=min_match)
    return RemoteDrafts(name, current, drafters, send, ledger, complaints)
