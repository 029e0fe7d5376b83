"""Coupled mode in fp32: the text depends on seed and target alone, not on who drafts, the batch, or a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from slipstream.wire.v1 import generation_pb2
from tests.e2e.cluster import Cluster, request
from tests.e2e.conftest import PROPOSERS, tenants
from tests.tiny_models import make_checkpoint, make_similar_checkpoint

NUM_REQUESTS = 8
NUM_TOKENS = 48


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("coupled")
    target = make_checkpoint(folder / "target", logit_std=3.0)
    with Cluster(folder) as cluster:
        cluster.verifier(target)
        cluster.drafter(make_similar_checkpoint(target, folder / "draft"))
        cluster.gateway(tenants("coupled", max_wait_ms=50))
        yield cluster


def sampled(index: int, num_tokens: int = NUM_TOKENS) -> generation_pb2.GenerateRequest:
    return request(
        [5 + index, 6, 7, 5 + index, 6], temperature=1.0, seed=1000 + index, max_tokens=num_tokens, ignore_eos=True
    )


async def texts(cluster: Cluster, tenant: str, at_once: int) -> list[str]:
    async with cluster.client(tenant) as client:
        answers = await client.generate_all([sampled(index) for index in range(NUM_REQUESTS)], at_once)
    return [answer.text for answer in answers]


async def test_text_is_the_same_whoever_drafts_and_however_many_run(cluster: Cluster) -> None:
    plain = await texts(cluster, "none", 1)
    assert len(set(plain)) == NUM_REQUESTS
    for tenant in PROPOSERS:
        for at_once in (1, NUM_REQUESTS):
            assert await texts(cluster, tenant, at_once) == plain, (tenant, at_once)


async def test_text_survives_a_restart_of_the_drafter_in_mid_stream(cluster: Cluster) -> None:
    async with cluster.client("none") as client:
        plain = await client.generate(sampled(0, 400))
    async with cluster.client("draft_model") as client:
        running = asyncio.create_task(client.generate(sampled(0, 400)))
        await asyncio.sleep(0.2)
        assert not running.done(), "too short to be disturbed"
        cluster.kill("drafter")
        await asyncio.to_thread(cluster.restart, "drafter")
        disturbed = await running
    assert disturbed.token_ids == plain.token_ids
    assert disturbed.last.usage.accepted_tokens > 0
