"""A verifier and its drafter in one process: the same text and metrics; it dies and drains like a verifier."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.scraped import Scraped
from launcher.peer import SERVING, connected
from slipstream.wire.v1 import generation_pb2
from tests.e2e.cluster import Answer, Client, Cluster, eventually, request
from tests.e2e.conftest import tenants
from tests.tiny_models import make_checkpoint, make_similar_checkpoint

SERVICES = ("slipstream.v1.Verifier", "slipstream.v1.Drafter")
METRICS = ("--metrics-listen", "127.0.0.1:0")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("models")
    target = make_checkpoint(folder / "target", logit_std=3.0, max_position_embeddings=4096)
    return target, make_similar_checkpoint(target, folder / "draft")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trace") / "trace.json"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, models: tuple[Path, Path], trace: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("one_process")) as cluster:
        cluster.pair(*models, *METRICS, "--trace", str(trace), "--hand-over")
        cluster.gateway(tenants("coupled", max_wait_ms=50, max_tokens=4096), "--recovery-seconds", "60")
        yield cluster


def sampled(index: int, num_tokens: int = 32) -> generation_pb2.GenerateRequest:
    return request([5 + index, 6, 7], temperature=1.0, seed=index, max_tokens=num_tokens, ignore_eos=True)


async def texts(cluster: Cluster, tenant: str) -> list[str]:
    async with cluster.client(tenant) as client:
        return [answer.text for answer in await client.generate_all([sampled(i) for i in range(3)], at_once=3)]


async def read_all(client: Client, asked: generation_pb2.GenerateRequest, begun: asyncio.Event) -> Answer:
    answer = Answer()
    async for message in client.stream(asked):
        answer.add(message)
        if len(answer.token_ids) >= 20:
            begun.set()
    return answer


@pytest.mark.slow
async def test_what_they_hand_over_in_memory_changes_no_text(tmp_path: Path, models: tuple[Path, Path]) -> None:
    found = []
    for way in ("--no-hand-over", "--hand-over"):
        (tmp_path / way).mkdir()
        with Cluster(tmp_path / way) as cluster:
            cluster.pair(*models, *METRICS, way)
            cluster.gateway(tenants("coupled", max_wait_ms=50))

            async def are_drafted() -> bool:
                found.append(await texts(cluster, "draft_model"))
                counted = Scraped.of(cluster.metrics_address("verifier"))
                return counted.total("slipstream_spec_decode_num_accepted_tokens_total") > 0

            await eventually(are_drafted, 30.0)
            told = Scraped.of(cluster.metrics_address("verifier"))
            came_back = told.total("slipstream_draft_round_trip_seconds_count")
            assert came_back > 0
    assert all(one == found[0] for one in found)


@pytest.mark.slow
async def test_text_is_what_separate_processes_write(
    cluster: Cluster, models: tuple[Path, Path], tmp_path: Path
) -> None:
    target, draft = models
    with Cluster(tmp_path) as separate:
        separate.verifier(target)
        separate.drafter(draft)
        separate.gateway(tenants("coupled", max_wait_ms=50))
        wanted = await texts(separate, "draft_model")
    assert await texts(cluster, "none") == await texts(cluster, "draft_model") == wanted


async def test_both_services_are_healthy_on_one_port_and_drafts_are_accepted(cluster: Cluster) -> None:
    with connected(cluster.address("verifier"), 10.0) as peer:
        assert [peer.health(service) for service in SERVICES] == [SERVING, SERVING]
        assert peer.model("drafter").proposers == ("draft_model",)
        assert peer.model("verifier").proposers == ()
    wanted = await texts(cluster, "none")

    async def are_accepted() -> bool:  # the gateway may have found the verifier before the drafter
        assert await texts(cluster, "draft_model") == wanted
        counted = Scraped.of(cluster.metrics_address("verifier"))
        return counted.total("slipstream_spec_decode_num_accepted_tokens_total", proposer="draft_model") > 0

    await eventually(are_accepted, 30.0)


async def test_killed_in_the_middle_it_is_waited_for_and_the_text_goes_on(cluster: Cluster) -> None:
    asked, begun = sampled(1, 300), asyncio.Event()
    async with cluster.client("none") as client:
        wanted = await client.generate(asked)
    async with cluster.client("draft_model") as client:
        answer = asyncio.create_task(read_all(client, asked, begun))
        await begun.wait()
        cluster.kill("verifier")
        cluster.restart("verifier")  # from this thread: the process ends with the one that started it
        assert (await answer).text == wanted.text


async def test_it_drains_what_runs_and_writes_one_timeline_of_both(cluster: Cluster, trace: Path) -> None:
    begun = asyncio.Event()
    async with cluster.client("draft_model") as client:
        answer = asyncio.create_task(read_all(client, sampled(2, 100), begun))
        await begun.wait()
        cluster.terminate("verifier")
        assert len((await answer).token_ids) == 100
    async with asyncio.timeout(20):
        while cluster.alive("verifier"):
            await asyncio.sleep(0.05)
    lanes = {event["args"].get("name") for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "M"}
    assert {"model", "draft", "commit out"} <= lanes
