"""What a session has to do with beyond its own request: links, and what requests share. Holds them; decides nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from gateway.control.controllers import Controllers
from gateway.peers.complaints import Complaints
from gateway.peers.dialects import CommitReceiver, VerifierItem
from gateway.peers.link import Link
from gateway.peers.pool import Pool
from gateway.peers.tritonserver import TritonServer
from gateway.policy.tenants import TRITONSERVER
from gateway.proposers import DrafterPool
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
    tritonserver: TritonServer | None = None

    async def run(self) -> None:
        """Keeps the connections to all of them, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.verifiers.run())
            tasks.create_task(self.drafters.run())
            if self.tritonserver is not None:
                tasks.create_task(self.tritonserver.run())

    @property
    def offered(self) -> set[str]:
        """Proposers that are known of, elsewhere; those that are away for now included."""
        return self.drafters.offered | ({TRITONSERVER} if self.tritonserver is not None else set())
