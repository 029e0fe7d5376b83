"""A verifier and a drafter that say what a test tells them to, on real gRPC streams in this process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from gateway.completion import Completion, Delta
from gateway.config import GatewayConfig
from gateway.gateway import Gateway, Running
from gateway.policy.tenants import Tenant, Tenants
from slipstream.exchange import (
    Commit,
    CommitBatch,
    Draft,
    DraftBatch,
    DraftToken,
    LawKind,
    ModelInfo,
    SequenceFailure,
    StepReport,
    Update,
)
from slipstream.request import FinishReason, SequenceRequest
from slipstream.text.tokenizer import Tokenizer
from slipstream.wire.commits import commit_batch_from_wire, commit_batch_to_wire
from slipstream.wire.drafts import draft_batch_from_wire, draft_batch_to_wire
from slipstream.wire.failures import failure_to_wire
from slipstream.wire.model_info import model_info_to_wire
from slipstream.wire.requests import open_from_wire, update_from_wire
from slipstream.wire.v1 import drafter_pb2, drafter_pb2_grpc, exchange_pb2, verifier_pb2, verifier_pb2_grpc
from tests.text.tiny_tokenizers import byte_level

TOKENIZER = byte_level()
STEP_US = 1000
PROMPT = (10, 20, 30)
TENANT = Tenant(name="test", anonymous=True, proposers=("none",))
DRAFTED = Tenant(name="drafted", anonymous=True, proposers=("draft_model",))

Journal = list[tuple[str, Any]]  # who received what, in the order of receipt


async def eventually(condition: Callable[[], Any], seconds: float = 5.0) -> None:
    """Fails unless the condition holds within the time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        await asyncio.sleep(0.005)


class FakePeer:
    """A server that can die and come back on the same port."""

    def __init__(self, journal: Journal, name: str, tokenizer: Tokenizer = TOKENIZER) -> None:
        self.journal = journal
        self.name = name
        self.info = ModelInfo(name="tiny", vocabulary_hash=tokenizer.vocabulary_hash, vocab_size=257, max_model_len=64)
        self.opens: list[SequenceRequest] = []
        self.closes: list[int] = []
        self.updates: list[Update] = []
        self.port = 0
        self._outbox: asyncio.Queue[Any] = asyncio.Queue()
        self._health = health.aio.HealthServicer()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        self._outbox = asyncio.Queue()
        self._health = health.aio.HealthServicer()
        self._server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self._register(self._server)
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self.set_health(health_pb2.HealthCheckResponse.SERVING)
        await self._server.start()

    async def set_health(self, status: Any) -> None:
        await self._health.set("", status)

    async def die(self) -> None:
        await self._server.stop(None)

    def fail(self, sequence_id: int, error: Exception) -> None:
        raise NotImplementedError

    def _register(self, server: grpc.aio.Server) -> None:
        raise NotImplementedError

    async def _converse(self, requests: AsyncIterator[Any], context: Any) -> None:
        reader = asyncio.create_task(self._read(requests))
        try:
            while True:
                await context.write(await self._outbox.get())
        finally:
            reader.cancel()
            with suppress(asyncio.CancelledError):
                await reader

    async def _read(self, requests: AsyncIterator[Any]) -> None:
        async for request in requests:
            kind = request.WhichOneof("message")
            self.journal.append((self.name, request))
            if kind == "open":
                self.opens.append(open_from_wire(request.open))
            elif kind == "close":
                self.closes.append(request.close.sequence_id)
            elif kind == "update":
                self.updates.append(update_from_wire(request.update))
            self._received(kind, request)

    def _received(self, kind: str, request: Any) -> None:
        """For what only one kind of peer receives."""


class FakeVerifier(FakePeer, verifier_pb2_grpc.VerifierServicer):
    def __init__(self, journal: Journal, name: str = "verifier", tokenizer: Tokenizer = TOKENIZER) -> None:
        super().__init__(journal, name, tokenizer)
        self.tokenizer = tokenizer
        self.drafts: list[Draft] = []
        self.tokenizer_requests: list[str] = []

    def commit(self, sequence_id: int, base: int, token_ids: Sequence[int], **fields: Any) -> None:
        self.commit_all([Commit(sequence_id, base, tuple(token_ids), **fields)])

    def commit_all(self, commits: Sequence[Commit]) -> None:
        self.send(CommitBatch(tuple(commits), StepReport(step_us=STEP_US)))

    def send(self, batch: CommitBatch) -> None:
        self._outbox.put_nowait(verifier_pb2.VerifyResponse(commits=commit_batch_to_wire(batch)))

    def say(self, commit: exchange_pb2.Commit) -> None:
        """As it stands, whether it makes sense or not."""
        self._outbox.put_nowait(verifier_pb2.VerifyResponse(commits=exchange_pb2.CommitBatch(commits=[commit])))

    def finish(self, sequence_id: int, base: int, token_ids: Sequence[int]) -> None:
        self.commit(sequence_id, base, token_ids, finish_reason=FinishReason.LENGTH)

    def fail(self, sequence_id: int, error: Exception) -> None:
        message = failure_to_wire(SequenceFailure(sequence_id, error))
        self._outbox.put_nowait(verifier_pb2.VerifyResponse(error=message))

    def _register(self, server: grpc.aio.Server) -> None:
        verifier_pb2_grpc.add_VerifierServicer_to_server(self, server)

    def _received(self, kind: str, request: Any) -> None:
        if kind == "drafts":
            self.drafts += draft_batch_from_wire(request.drafts).drafts

    async def Verify(self, request_iterator: Any, context: Any) -> None:
        await self._converse(request_iterator, context)

    async def GetModel(self, request: Any, context: Any) -> exchange_pb2.ModelInfo:
        return model_info_to_wire(self.info)

    async def GetTokenizer(self, request: Any, context: Any) -> None:
        self.tokenizer_requests.append(request.known_hash)
        if request.known_hash == self.tokenizer.content_hash:
            return
        for name, data in self.tokenizer.files.items():
            for start in range(0, len(data), 1000):
                chunk = verifier_pb2.TokenizerChunk(
                    content_hash=self.tokenizer.content_hash, file_name=name, data=data[start : start + 1000]
                )
                await context.write(chunk)


class FakeDrafter(FakePeer, drafter_pb2_grpc.DrafterServicer):
    def __init__(self, journal: Journal, name: str = "drafter", tokenizer: Tokenizer = TOKENIZER) -> None:
        super().__init__(journal, name, tokenizer)
        self.info = ModelInfo(
            name="tiny-draft",
            vocabulary_hash=tokenizer.vocabulary_hash,
            vocab_size=257,
            max_model_len=64,
            proposers=("draft_model",),
        )
        self.commits: list[Commit] = []
        self.features: list[exchange_pb2.Features] = []

    def draft(self, sequence_id: int, base: int, token_ids: Sequence[int], draw: int = 0) -> None:
        tokens = tuple(DraftToken(token_id, LawKind.ONE_HOT) for token_id in token_ids)
        batch = DraftBatch((Draft(sequence_id, base, "draft_model", draw, tokens),), draft_us=700, held_us=0)
        self._outbox.put_nowait(drafter_pb2.DraftResponse(drafts=draft_batch_to_wire(batch)))

    def fail(self, sequence_id: int, error: Exception) -> None:
        message = failure_to_wire(SequenceFailure(sequence_id, error))
        self._outbox.put_nowait(drafter_pb2.DraftResponse(error=message))

    def _register(self, server: grpc.aio.Server) -> None:
        drafter_pb2_grpc.add_DrafterServicer_to_server(self, server)

    def _received(self, kind: str, request: Any) -> None:
        if kind == "commits":
            self.commits += commit_batch_from_wire(request.commits).commits
        elif kind == "features":
            self.features += request.features.features

    async def Draft(self, request_iterator: Any, context: Any) -> None:
        await self._converse(request_iterator, context)

    async def GetModel(self, request: Any, context: Any) -> exchange_pb2.ModelInfo:
        return model_info_to_wire(self.info)


@asynccontextmanager
async def running_gateway(
    verifiers: Sequence[FakeVerifier],
    drafters: Sequence[FakeDrafter] = (),
    tenants: Sequence[Tenant] = (TENANT,),
    **settings: Any,
) -> AsyncIterator[Gateway]:
    """A gateway connected to these peers, which are started here and stopped at the end."""
    peers = [*verifiers, *drafters]
    for peer in peers:
        await peer.start()
    config = GatewayConfig(
        verifiers=tuple(peer.address for peer in verifiers),
        drafters=tuple(peer.address for peer in drafters),
        **settings,
    )
    gateway = Gateway(config, Tenants(tenants))
    links = asyncio.create_task(gateway.run())
    try:
        await eventually(lambda: gateway.num_peers == len(peers))
        yield gateway
    finally:
        links.cancel()
        with suppress(asyncio.CancelledError):
            await links
        for peer in peers:
            await peer.die()


class Client:
    """Runs one completion in a task and keeps what came."""

    def __init__(self, gateway: Gateway, tenant: Tenant = TENANT, deadline: float | None = None, **fields: Any) -> None:
        completion = Completion(**({"prompt": PROMPT} | fields))
        self.deltas: list[Delta] = []
        self.running: Running | None = None
        self.task = asyncio.create_task(self._run(gateway, tenant, completion, deadline))

    @property
    def token_ids(self) -> list[int]:
        return [token_id for delta in self.deltas for token_id in delta.token_ids]

    @property
    def text(self) -> str:
        return "".join(delta.text for delta in self.deltas)

    async def _run(self, gateway: Gateway, tenant: Tenant, completion: Completion, deadline: float | None) -> None:
        async with gateway.complete(tenant, completion, deadline) as self.running:
            async for delta in self.running.deltas:
                self.deltas.append(delta)


async def opened(peer: Any, count: int = 1) -> int:
    """The id of the newest sequence, once `count` were opened on the peer."""
    await eventually(lambda: len(peer.opens) >= count)
    return int(peer.opens[-1].sequence_id)
