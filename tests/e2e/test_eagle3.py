"""An EAGLE-3 head as a drafter service: the text stays the target's, drafts come, also after the drafter was lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from slipstream.wire.v1 import generation_pb2
from tests.e2e.cluster import Answer, Client, Cluster, request
from tests.models.eagle3_heads import make_head
from tests.tiny_models import make_checkpoint

TENANTS = [
    {"name": name, "proposers": [name], "mode": "coupled", "max_wait_ms": 200, "num_draft_tokens": 2, "fan_out": 2}
    for name in ("none", "eagle3")
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("eagle3")
    target = make_checkpoint(folder / "target", layers=6, logit_std=3.0)
    head = make_head(folder / "head")
    with Cluster(folder) as cluster:
        cluster.verifier(target, "--features", str(head), "--max-num-batched-tokens", "64")
        cluster.drafter(head, "--target-model", str(target), "--proposer", "eagle3")
        cluster.gateway(TENANTS)
        yield cluster


def asked(num_tokens: int) -> generation_pb2.GenerateRequest:
    return request(list(range(40, 140)), temperature=1.0, seed=7, max_tokens=num_tokens, ignore_eos=True)


async def answer_with_drafts(client: Client) -> Answer:
    """Of a random head hardly a draft stands, so the verifier waits little for them; all may come late."""
    for _ in range(20):
        answer = await client.generate(asked(60))
        if answer.last.usage.num_draft_tokens:
            return answer
    raise AssertionError("no draft came in time in twenty answers")


async def test_the_text_is_the_targets_and_drafts_come_again_after_the_drafter_was_lost(cluster: Cluster) -> None:
    async with cluster.client("none") as client:
        plain = await client.generate(asked(150))
    async with cluster.client("eagle3") as client:
        first = await answer_with_drafts(client)
        running = asyncio.create_task(client.generate(asked(150)))
        await asyncio.sleep(0.2)
        cluster.kill("drafter")
        await asyncio.to_thread(cluster.restart, "drafter")
        disturbed = await running
        again = await answer_with_drafts(client)
    assert first.token_ids == again.token_ids == plain.token_ids[:60]
    assert disturbed.token_ids == plain.token_ids
