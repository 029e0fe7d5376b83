"""Metrics of real processes: every one documented and none besides; what all three count agrees."""

from __future__ import annotations

import asyncio
import re
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from slipstream.wire.v1 import generation_pb2
from tests.e2e.cluster import Cluster, eventually, free_port, request
from tests.e2e.conftest import PROPOSERS, tenants
from tests.tiny_models import make_checkpoint, make_similar_checkpoint

SERVICES = ("gateway", "verifier", "drafter")
PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| ([\w, ]*?) ?\| ([\w, ]+) \| ", re.MULTILINE)
SHARED = (
    "passes",
    "cut_passes",
    "committed_tokens",
    "spec_decode_num_drafts",
    "spec_decode_num_draft_tokens",
    "spec_decode_num_accepted_tokens",
    "spec_decode_num_accepted_tokens_per_pos",
)

Series = dict[frozenset[tuple[str, str]], float]  # by labels


@dataclass(slots=True)
class Scrape:
    types: dict[str, str] = field(default_factory=dict)  # by exported name
    labels: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    samples: dict[str, Series] = field(default_factory=lambda: defaultdict(dict))

    def total(self, name: str, **labels: str) -> float:
        series = self.samples[f"slipstream_{name}_total"]
        return sum(value for has, value in series.items() if labels.items() <= dict(has).items())


class Ports:
    """Where each service of the cluster shows its metrics."""

    def __init__(self) -> None:
        self._ports = {service: free_port() for service in SERVICES}

    def option(self, service: str) -> tuple[str, str]:
        return "--metrics-listen", f"127.0.0.1:{self._ports[service]}"

    async def scrape(self, service: str) -> Scrape:
        return parsed(await asyncio.to_thread(self._fetch, service))

    def _fetch(self, service: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._ports[service]}/metrics", timeout=5) as reply:
            return str(reply.read(), "utf-8")


def parsed(text: str) -> Scrape:
    scrape = Scrape()
    for family in text_string_to_metric_families(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        scrape.types[name] = family.type
        for sample in family.samples:
            scrape.labels[name] |= set(sample.labels) - {"le"}
            scrape.samples[sample.name][frozenset(sample.labels.items())] = sample.value
    return scrape


def documented(service: str) -> dict[str, tuple[str, set[str]]]:
    """Type and labels by name."""
    rows = (match.groups() for match in ROW.finditer(PAGE.read_text()))
    return {
        name: (kind, set(filter(None, labels.split(", "))))
        for name, kind, labels, services in rows
        if service in services.split(", ")
    }


@pytest.fixture(scope="module")
def ports() -> Ports:
    return Ports()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, ports: Ports) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("metrics")
    target = make_checkpoint(folder / "target", logit_std=3.0)
    draft = make_similar_checkpoint(target, folder / "draft", noise=0.1)
    with Cluster(folder) as cluster:
        cluster.verifier(target, *ports.option("verifier"))
        cluster.drafter(draft, *ports.option("drafter"))
        cluster.gateway(tenants("ratio", max_wait_ms=1000, num_draft_tokens=4), *ports.option("gateway"))
        yield cluster


def asked(index: int, *stop_token_ids: int) -> generation_pb2.GenerateRequest:
    return request([5 + index, 6, 7], temperature=0.0, max_tokens=40, ignore_eos=True, stop_token_ids=stop_token_ids)


async def test_what_all_three_count_agrees(cluster: Cluster, ports: Ports) -> None:
    told = {}
    for tenant in PROPOSERS:
        async with cluster.client(tenant) as client:
            whole = await client.generate_all([asked(i) for i in range(8)], at_once=3)
            # The same again, alone, so that drafts are waited for; each ended by a token from its middle, often one
            # inside an accepted draft.
            stops = [(i, whole[i].token_ids[place]) for i in range(8) for place in (8, 18)]
            ended = await client.generate_all([asked(*stop) for stop in stops], at_once=1)
        told[tenant] = sum(answer.last.usage.completion_tokens for answer in whole + ended)
        assert sum(len(answer.token_ids) for answer in whole + ended) == told[tenant]

    async def agreed() -> bool:
        gateway, verifier, drafter = [await ports.scrape(service) for service in SERVICES]
        names = [f"slipstream_{name}_total" for name in SHARED]
        drafted = [only(drafter.samples[name], {"draft_model", "both"}) for name in names]
        return [gateway.samples[name] for name in names] == [verifier.samples[name] for name in names] and drafted == [
            only(gateway.samples[name], {"draft_model", "both"}) for name in names
        ]

    await eventually(agreed, 10)
    for service in SERVICES:
        scrape = await ports.scrape(service)
        for tenant in PROPOSERS if service != "drafter" else ("draft_model", "both"):
            committed = scrape.total("committed_tokens", tenant=tenant)
            accepted = scrape.total("spec_decode_num_accepted_tokens", tenant=tenant)
            passes, cut = (scrape.total(name, tenant=tenant) for name in ("passes", "cut_passes"))
            assert committed == accepted + passes - cut == told[tenant], (service, tenant)
            assert accepted == scrape.total("spec_decode_num_accepted_tokens_per_pos", tenant=tenant)
    gateway = await ports.scrape("gateway")
    assert gateway.total("spec_decode_num_accepted_tokens") > 0
    assert gateway.total("cut_passes") > 0


def only(series: Series, names: set[str]) -> Series:
    return {labels: value for labels, value in series.items() if dict(labels)["tenant"] in names}


async def test_requests_and_sequences_are_counted_by_how_they_ended(cluster: Cluster, ports: Ports) -> None:
    before = await ports.scrape("gateway")
    async with cluster.client("draft_model") as client, cluster.client("stranger") as stranger:
        await client.generate(request([5, 6, 7], max_tokens=4, ignore_eos=True))
        call = client.stream(request([5, 6, 7], ignore_eos=True))
        await call.read()
        call.cancel()
        for caller in (client, stranger):
            with pytest.raises(Exception, match=r"top_p is 7|belongs to no tenant"):
                await caller.generate(request([5], top_p=7.0))

    async def counted() -> bool:
        after = await ports.scrape("gateway")
        return all(
            after.total("requests", tenant=tenant, outcome=end) - before.total("requests", tenant=tenant, outcome=end)
            == 1
            for tenant, end in (
                ("draft_model", "LENGTH"),
                ("draft_model", "CANCELLED"),
                ("draft_model", "INVALID_ARGUMENT"),
                ("", "UNAUTHENTICATED"),
            )
        )

    await eventually(counted)
    for service in ("verifier", "drafter"):
        assert (await ports.scrape(service)).total("sequences", tenant="draft_model", outcome="CLOSED") == 1


@pytest.mark.parametrize("service", SERVICES)
async def test_every_metric_is_documented_and_none_besides(cluster: Cluster, ports: Ports, service: str) -> None:
    """After the tests above, so that there are samples of most labels."""
    scrape, page = await ports.scrape(service), documented(service)
    assert scrape.types.keys() == page.keys()
    for name, (kind, labels) in page.items():
        assert scrape.types[name] == kind, name
        assert scrape.labels[name] <= labels, name
        if scrape.labels[name]:
            assert scrape.labels[name] == labels, name


@pytest.mark.parametrize("service", SERVICES)
async def test_a_scrape_holds_up_nobody(cluster: Cluster, ports: Ports, service: str) -> None:
    async with cluster.client("draft_model") as client:
        answer, *_ = await asyncio.gather(
            client.generate(request([9, 8], max_tokens=60, ignore_eos=True)),
            *(ports.scrape(service) for _ in range(20)),
        )
    assert len(answer.token_ids) == 60
