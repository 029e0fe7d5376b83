"""What a session has to do with beyond its own request: links, and what requests share. Holds them, does nothing."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.controllers import Controllers
from gateway.dialects import CommitReceiver, VerifierItem
from gateway.link import Link
from gateway.pool import Pool
from gateway.proposers import Complaints, DrafterPool
from gateway.recent_output import RecentOutputs

VerifierPool = Pool[CommitReceiver, VerifierItem]
VerifierLink = Link[CommitReceiver, VerifierItem]


@dataclass(frozen=True, slots=True)
class Peers:
    """All that a gateway is connected to, and what it has learnt."""

    verifiers: VerifierPool
    drafters: DrafterPool
    complaints: Complaints
    controllers: Controllers
    recent_outputs: RecentOutputs
    recovery_seconds: float  # how long a sequence waits for a verifier to come back
