"""What breaks is survived: drafters, verifiers, gateways, clients die; nobody else notices, nothing stays held."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from functools import partial
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from bench.scraped import Scraped
from launcher.topology import num_cores
from slipstream.wire.v1 import generation_pb2
from slipstream.wire.v1.drafter_pb2_grpc import DrafterStub
from tests.e2e.cluster import Answer, Client, Cluster, eventually, kv_blocks_used, request
from tests.e2e.conftest import tenants
from tests.tiny_models import make_checkpoint, make_similar_checkpoint

LONG = 450  # output tokens: about a second of work
ENDLESS = 16_000  # more than any test reads
MOVED = 300  # output tokens of each of many
VERIFIERS = ("verifier1", "verifier2")
SETTINGS = {"max_wait_ms": 20}
METRICS = ("--metrics-listen", "127.0.0.1:0")

Asked = tuple[str, generation_pb2.GenerateRequest]  # as which tenant, and what


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("failures")
    target = make_checkpoint(folder / "target", logit_std=3.0, max_position_embeddings=2 * ENDLESS)
    return target, make_similar_checkpoint(target, folder / "draft")


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory, models: tuple[Path, Path]) -> Iterator[Cluster]:
    """With a patient verifier: to one as tiny as these, drafts are not worth a wait."""
    target, draft = models
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.verifier(target, module="tests.e2e.altered_services verifier patient")
        cluster.drafter(draft)
        cluster.gateway(tenants("coupled", max_tokens=ENDLESS, max_wait_ms=200))
        yield cluster


@pytest.fixture
def cluster(services: Cluster) -> Cluster:
    """One of each; what an earlier test killed is back."""
    for name in ("verifier", "drafter", "gateway"):
        if not services.alive(name):
            services.restart(name)
    return services


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


def two_seconds() -> float:
    """In which drafting resumes; as much longer as this machine has more to do than it has cores for."""
    return 2.0 * max(1.0, os.getloadavg()[0] / num_cores())


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
        cluster.restart("drafter")  # not in a thread: the drafter would end with it, and later tests need one
        healthy = time.monotonic()
        while not sum((await client.generate(long(1, 16))).drafted):
            assert time.monotonic() - healthy < two_seconds()
    assert cluster.alive("verifier")
    assert cluster.alive("gateway")


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


@contextmanager
def two_verifiers(folder: Path, models: tuple[Path, Path]) -> Iterator[Cluster]:
    target, draft = models
    ratio = [{**tenant, "name": f"ratio_{tenant['name']}"} for tenant in tenants("ratio", max_tokens=ENDLESS)]
    with Cluster(folder) as cluster:
        for name in VERIFIERS:
            cluster.verifier(target, name=name)
        cluster.drafter(draft)
        cluster.gateway(
            [*tenants("coupled", max_tokens=ENDLESS, **SETTINGS), *ratio], "--recovery-seconds", "60", *METRICS
        )
        yield cluster


async def begin(
    cluster: Cluster, stack: AsyncExitStack, wanted: Sequence[Asked], on: Sequence[str]
) -> list[tuple[object, Answer]]:
    """Streams of several tenants that all have begun, some on each of these verifiers."""
    names = {tenant for tenant, _ in wanted}
    clients = {tenant: await stack.enter_async_context(cluster.client(tenant)) for tenant in names}
    begun = await asyncio.gather(*(read_some(clients[tenant], 1, asked) for tenant, asked in wanted))
    assert all([await kv_blocks_used(cluster.address(name)) for name in on])
    return begun


async def drains(address: str) -> bool:
    async with grpc.aio.insecure_channel(address) as channel:
        answer = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
    return bool(answer.status == health_pb2.HealthCheckResponse.NOT_SERVING)


async def is_connected(cluster: Cluster, num_verifiers: int) -> bool:
    counted = await asyncio.to_thread(Scraped.of, cluster.metrics_address("gateway"))
    return counted.total("slipstream_verifiers") == num_verifiers


async def num_moved(cluster: Cluster) -> float:
    """Sequences that were lost with a verifier."""
    counted = await asyncio.to_thread(Scraped.of, cluster.metrics_address("gateway"))
    return counted.total("slipstream_moves_total", reason="lost")


async def finish(begun: Sequence[tuple[object, Answer]]) -> list[Answer]:
    await asyncio.gather(*(rest(call, answer) for call, answer in begun))
    return [answer for _, answer in begun]


def mixed(first: int) -> list[Asked]:
    """Sixteen requests of all ways of drafting; every fourth is verified in ratio mode, every third has penalties."""
    names = ["draft_model", "both", "ngram", "ratio_draft_model"]
    asked = [(names[index % 4], long(first + index, MOVED)) for index in range(16)]
    for _, penalised in asked[::3]:
        penalised.frequency_penalty, penalised.repetition_penalty = 0.2, 1.1
    return asked


async def test_sixteen_streams_survive_a_verifier_that_is_killed_and_one_that_drains(
    tmp_path: Path, models: tuple[Path, Path]
) -> None:
    with two_verifiers(tmp_path, models) as cluster:
        await eventually(partial(is_connected, cluster, len(VERIFIERS)), 30.0)
        async with AsyncExitStack() as stack:
            begun = await begin(cluster, stack, mixed(0), VERIFIERS)
            cluster.kill("verifier1")
            survived = await finish(begun)
            assert await num_moved(cluster) > 0
            await asyncio.to_thread(cluster.restart, "verifier1")
            begun = await begin(cluster, stack, mixed(16)[:4], ["verifier2"])
            cluster.terminate("verifier2")
            await eventually(partial(drains, cluster.address("verifier2")))
            late = await begin(cluster, stack, mixed(16)[4:8], ["verifier1"])
            cluster.terminate("verifier2")  # and ends, done or not
            survived += await finish([*begun, *late])
        for answer in survived:
            assert answer.last.usage.completion_tokens == len(answer.token_ids) == MOVED
        asked = zip(survived, [*mixed(0), *mixed(16)[:8]], strict=True)
        coupled = [(answer, one) for answer, (tenant, one) in asked if not tenant.startswith("ratio")]
        async with cluster.client("ngram") as client:
            undisturbed = await client.generate_all([one for _, one in coupled], 16)
    assert [answer.token_ids for answer, _ in coupled] == [answer.token_ids for answer in undisturbed]


async def test_a_deadline_ends_the_call_and_frees_what_it_held(cluster: Cluster) -> None:
    async with cluster.client("none") as client:
        call = client.stub.Generate(long(), timeout=0.3, metadata=client.metadata)
        with pytest.raises(grpc.aio.AioRpcError) as failure:
            await rest(call, Answer())
        assert failure.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED

        await all_free(cluster)


async def test_drafting_resumes_in_a_running_stream(cluster: Cluster) -> None:
    """The last of its cluster: the drafter that it starts ends with the thread that this is done in."""
    async with cluster.client("draft_model") as client:
        call, _ = await read_some(client, 20, long(0, ENDLESS))
        cluster.kill("drafter")
        await asyncio.to_thread(cluster.restart, "drafter")
        healthy, drafted = time.monotonic(), False
        while not drafted:
            message = await call.read()  # type: ignore[attr-defined]
            assert message is not grpc.aio.EOF, "the stream ended before drafting resumed"
            drafted = any(message.drafted) and time.monotonic() > healthy
            assert time.monotonic() - healthy < two_seconds()
        call.cancel()  # type: ignore[attr-defined]
