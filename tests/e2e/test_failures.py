"""What breaks is survived: drafters, verifiers, gateways, clients die; nobody else notices, nothing stays held."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from slipstream.wire.v1 import generation_pb2
from slipstream.wire.v1.drafter_pb2_grpc import DrafterStub
from tests.e2e.cluster import Answer, Client, Cluster, eventually, kv_blocks_used, request
from tests.e2e.conftest import tenants
from tests.tiny_models import make_checkpoint, make_similar_checkpoint

LONG = 450  # output tokens: about a second of work
ENDLESS = 16_000  # more than any test reads
SETTINGS = {"max_wait_ms": 20}


@pytest.fixture
def models(tmp_path: Path) -> tuple[Path, Path]:
    target = make_checkpoint(tmp_path / "target", logit_std=3.0, max_position_embeddings=2 * ENDLESS)
    return target, make_similar_checkpoint(target, tmp_path / "draft")


@pytest.fixture
def cluster(tmp_path: Path, models: tuple[Path, Path]) -> Iterator[Cluster]:
    """One of each; the verifier never forgets prompts, so KV use at rest is told apart from a leak."""
    target, draft = models
    with Cluster(tmp_path) as cluster:
        cluster.verifier(target)
        cluster.drafter(draft)
        cluster.gateway(tenants("coupled", max_tokens=ENDLESS, **SETTINGS))
        yield cluster


def long(index: int = 0, num_tokens: int = LONG) -> generation_pb2.GenerateRequest:
    return request([5 + index, 6, 7], temperature=1.0, seed=index, max_tokens=num_tokens, ignore_eos=True)


async def read_some(
    client: Client, num_tokens: int, asked: generation_pb2.GenerateRequest | None = None
) -> tuple[object, Answer]:
    """A stream that is being read, and what has come."""
    call, answer = client.stream(asked or long()), Answer()
    while len(answer.token_ids) < num_tokens:
        answer.add(await call.read())
    return call, answer


async def rest(call: object, answer: Answer) -> list[float]:
    """Reads the stream to its end; returns when each drafted token came."""
    times = []
    while (message := await call.read()) is not grpc.aio.EOF:  # type: ignore[attr-defined]
        times += [time.monotonic()] * sum(message.drafted)
        answer.add(message)
    return times


async def all_free(cluster: Cluster) -> None:
    """Waits until neither verifier nor drafter holds KV."""

    async def free() -> bool:
        verifier = await kv_blocks_used(cluster.address("verifier"))
        return verifier == await kv_blocks_used(cluster.address("drafter"), DrafterStub) == 0

    await eventually(free)


async def test_a_killed_drafter_costs_no_token_and_drafts_again_within_two_seconds(cluster: Cluster) -> None:
    async with cluster.client("none") as client:
        plain = await client.generate(long())
    async with cluster.client("draft_model") as client:
        call, answer = await read_some(client, 20)
        cluster.kill("drafter")
        await rest(call, answer)
        assert answer.token_ids == plain.token_ids
        await asyncio.to_thread(cluster.restart, "drafter")
        healthy = time.monotonic()
        while not sum((await client.generate(long(1, 16))).drafted):
            assert time.monotonic() - healthy < 2.0
    assert cluster.alive("verifier")
    assert cluster.alive("gateway")


async def test_drafting_resumes_in_a_running_stream(tmp_path: Path, models: tuple[Path, Path]) -> None:
    """With a patient verifier: to one as tiny as these, drafts are not worth a wait."""
    target, draft = models
    with Cluster(tmp_path) as cluster:
        cluster.verifier(target, module="tests.e2e.altered_services patient")
        cluster.drafter(draft)
        cluster.gateway(tenants("coupled", max_tokens=ENDLESS, max_wait_ms=200))
        async with cluster.client("draft_model") as client:
            call, _ = await read_some(client, 20, long(0, ENDLESS))
            cluster.kill("drafter")
            await asyncio.to_thread(cluster.restart, "drafter")
            healthy, drafted = time.monotonic(), False
            while not drafted:
                message = await call.read()  # type: ignore[attr-defined]
                assert message is not grpc.aio.EOF, "the stream ended before drafting resumed"
                drafted = any(message.drafted) and time.monotonic() > healthy
                assert time.monotonic() - healthy < 2.0
            call.cancel()  # type: ignore[attr-defined]


async def test_a_killed_gateway_leaves_no_kv_behind(cluster: Cluster) -> None:
    async with cluster.client("draft_model") as client:
        call, _ = await read_some(client, 5)
        assert await kv_blocks_used(cluster.address("verifier")) > 0
        cluster.kill("gateway")
        with pytest.raises(grpc.aio.AioRpcError):
            await rest(call, Answer())

    await all_free(cluster)


async def test_a_client_that_leaves_frees_what_it_held(cluster: Cluster) -> None:
    async with cluster.client("draft_model") as client:
        for _ in range(20):
            call, _ = await read_some(client, 1)
            call.cancel()  # type: ignore[attr-defined]

        await all_free(cluster)
        assert len((await client.generate(long(0, 8))).token_ids) == 8


async def test_a_killed_verifier_is_a_clear_unavailable(cluster: Cluster) -> None:
    async with cluster.client("draft_model") as client:
        call, answer = await read_some(client, 5)
        cluster.kill("verifier")
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await rest(call, answer)
    assert failure.value.code() is grpc.StatusCode.UNAVAILABLE
    assert "no verifier serves" in (failure.value.details() or "")


async def test_a_sequence_moves_to_another_verifier_and_reads_the_same(
    tmp_path: Path, models: tuple[Path, Path]
) -> None:
    target, draft = models
    with Cluster(tmp_path) as cluster:
        cluster.verifier(target, name="verifier1")
        cluster.verifier(target, name="verifier2")
        cluster.drafter(draft)
        cluster.gateway(tenants("coupled", max_tokens=ENDLESS, **SETTINGS))
        async with cluster.client("none") as client:
            plain = await client.generate(long())
        async with cluster.client("draft_model") as client:
            call, answer = await read_some(client, 20)
            used = [await kv_blocks_used(cluster.address(name)) for name in ("verifier1", "verifier2")]
            cluster.kill("verifier1" if used[0] else "verifier2")
            await rest(call, answer)
    assert answer.token_ids == plain.token_ids
    assert answer.last.usage.completion_tokens == LONG


async def test_a_deadline_ends_the_call_and_frees_what_it_held(cluster: Cluster) -> None:
    async with cluster.client("none") as client:
        call = client.stub.Generate(long(), timeout=0.3, metadata=client.metadata)
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await rest(call, Answer())
        assert failure.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED

        await all_free(cluster)
