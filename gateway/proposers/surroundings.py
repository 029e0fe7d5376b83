"""What the proposers of one sequence have to do with. Knows what there is; each proposer takes what it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gateway.control.free_score import Index, OnTrial
from gateway.peers.complaints import Complaints
from gateway.peers.dialects import DrafterItem, DraftReceiver
from gateway.peers.link import Link
from gateway.peers.pool import Pool
from gateway.peers.tritonserver import TritonServer
from gateway.proposers.proposer import DraftRecord, SendToVerifier
from slipstream.request import SequenceRequest

DrafterPool = Pool[DraftReceiver, DrafterItem]
DrafterLink = Link[DraftReceiver, DrafterItem]


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    current: Callable[[], SequenceRequest]  # the sequence as it stands, with a fresh nonce
    vocab_size: Callable[[], int]  # of the target
    send: SendToVerifier
    drafters: DrafterPool
    record: DraftRecord
    complaints: Complaints
    process: Callable[[], str] = lambda: ""  # that the verifier names, in which it hands over to a drafter; or none
    tritonserver: TritonServer | None = None
    index: Index | None = None  # that n-grams are looked up in; None: of the sequence's own tokens
    on_trial: OnTrial | None = None  # called with how good n-grams are; None: not scored
