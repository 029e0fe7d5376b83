"""Policies through real processes: each tenant's own proposers, changes taken up live, drafting off and on again."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from launcher.policy_status import PolicyStatus, policies_in
from launcher.scrape import metrics_text
from slipstream.wire.v1 import generation_pb2
from tests.e2e.cluster import Answer, Cluster, eventually, hashed_keys, request
from tests.tiny_models import make_checkpoint, make_similar_checkpoint

SHOWN = ("--metrics-listen", "127.0.0.1:0")
NGRAM = {"name": "ngram", "proposers": ["ngram"], "num_draft_tokens": 3}
MODEL = {"name": "model", "proposers": ["draft_model"], "num_draft_tokens": 4, "max_wait_ms": 1000}
AUTO = {"name": "auto", "proposers": "auto", "num_draft_tokens": 6, "max_wait_ms": 1000}
GATED = {"name": "gated", "proposers": ["draft_model"], "off_below_acceptance": 0.3, "max_wait_ms": 1000}
TENANTS: list[dict[str, Any]] = [NGRAM, MODEL, AUTO, GATED]


class Stack:
    """A cluster whose draft model can be exchanged for a good one."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self._folder = folder
        target = make_checkpoint(folder / "target", logit_std=3.0)
        make_similar_checkpoint(target, folder / "good", noise=0.05)
        make_checkpoint(folder / "draft", logit_std=3.0, seed=99)  # has nothing to do with the target
        cluster.verifier(target)
        cluster.drafter(folder / "draft")
        cluster.gateway(TENANTS, *SHOWN)

    def exchange_draft_model(self) -> None:
        self.cluster.kill("drafter")
        shutil.copytree(self._folder / "good", self._folder / "draft", dirs_exist_ok=True)
        self.cluster.restart("drafter")

    def write_tenants(self, tenants: list[dict[str, Any]]) -> None:
        self.write(yaml.safe_dump({"tenants": hashed_keys(tenants)}))

    def write(self, text: str) -> None:
        (self._folder / "tenants.yaml").write_text(text)

    async def metrics(self) -> str:
        address = self.cluster.metrics_address("gateway")
        text = await asyncio.to_thread(metrics_text, address, 10.0)
        assert text is not None
        return text

    async def policy(self, tenant: str) -> PolicyStatus:
        return next(policy for policy in policies_in(await self.metrics()) if policy.tenant == tenant)

    async def total(self, name: str, **labels: str) -> float:
        families = text_string_to_metric_families(await self.metrics())
        samples = [sample for family in families for sample in family.samples if sample.name == f"slipstream_{name}"]
        return sum(sample.value for sample in samples if labels.items() <= sample.labels.items())

    async def ask(self, tenant: str, count: int = 1, **fields: Any) -> list[Answer]:
        async with self.cluster.client(tenant) as client:
            return await client.generate_all([asked(i, **fields) for i in range(count)], at_once=1)


def asked(index: int, **fields: Any) -> generation_pb2.GenerateRequest:
    return request([5 + index, 6, 7, 5 + index, 6], temperature=0.0, ignore_eos=True, **({"max_tokens": 40} | fields))


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("policy")
    with Cluster(folder) as cluster:
        yield Stack(cluster, folder)


async def test_tenants_under_one_load_get_their_own_proposers_and_the_same_text(stack: Stack) -> None:
    answers = await asyncio.gather(*(stack.ask(name, count=3) for name in ("ngram", "model", "auto")))
    texts = [[answer.token_ids for answer in answered] for answered in answers]
    assert texts[0] == texts[1] == texts[2]
    await stack.ask("model")  # alone it waits for its drafts, which in a batch may come too late
    for tenant, proposer in (("ngram", "ngram"), ("model", "draft_model")):
        drafted = await stack.total("spec_decode_num_drafts_total", tenant=tenant)
        assert drafted == await stack.total("spec_decode_num_drafts_total", tenant=tenant, proposer=proposer)
    assert await stack.total("spec_decode_num_drafts_total", tenant="model") > 0
    policy = await stack.policy("auto")
    assert policy.goodput
    assert policy.why


async def test_a_change_is_taken_up_by_a_running_stream_and_a_bad_file_changes_nothing(stack: Stack) -> None:
    off = {**MODEL, "proposers": ["none"]}
    async with stack.cluster.client("model") as client:
        first = await client.generate(asked(0))
        stack.write("tenants: [{name: model, mode: fast}]")

        async def rejected() -> bool:
            return await stack.total("policy_reloads_total", outcome="rejected") >= 1

        await eventually(rejected, 20)
        again = await client.generate(asked(0))
        assert again.token_ids == first.token_ids
        assert again.last.usage.num_drafts > 0
        running = client.stream(asked(1, max_tokens=250))
        tokens = len((await anext(aiter(running))).token_ids)
        stack.write_tenants([NGRAM, off, AUTO, GATED])

        async def accepted() -> bool:
            return await stack.total("policy_reloads_total", outcome="accepted") >= 1

        await eventually(accepted, 20)
        async for message in running:
            tokens += len(message.token_ids)
        assert tokens == 250
        assert (await client.generate(asked(0))).last.usage.num_draft_tokens == 0
    stack.write_tenants(TENANTS)


async def collapsed(stack: Stack) -> bool:
    await stack.ask("gated", count=4)
    policy = await stack.policy("gated")
    return (policy.way, policy.reason) == ("none", "below_acceptance")


async def test_drafting_ends_where_nothing_is_accepted_and_the_reason_is_shown(stack: Stack) -> None:
    await eventually(lambda: collapsed(stack), 60)
    (plain,) = await stack.ask("gated", max_tokens=10)
    assert plain.last.usage.num_draft_tokens == 0


@pytest.mark.slow
async def test_drafting_comes_back_when_drafts_are_accepted_again(stack: Stack) -> None:
    await eventually(lambda: collapsed(stack), 60)
    stack.exchange_draft_model()

    async def drafting_again() -> bool:
        await stack.ask("gated", count=4, max_tokens=120)
        return (await stack.policy("gated")).way == "draft_model"

    await eventually(drafting_again, 100)
