"""Adapters through real processes: the tenant's policy chooses, loading and unloading need no restart.

The target is the draft model with the adapter merged into it, so the adapter's drafts all stand and the base's do not.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from typer.testing import CliRunner

from launcher.cli.adapters import app
from slipstream.models.adapter import load_adapter
from slipstream.models.loader import load_config, open_checkpoint
from tests.e2e.cluster import Answer, Cluster, eventually, request
from tests.tiny_adapters import make_adapter, merge
from tests.tiny_models import make_checkpoint

DRAFTING: dict[str, Any] = {"proposers": ["draft_model"], "num_draft_tokens": 4, "max_wait_ms": 1000}
TENANTS = [{"name": "lawyers", "adapter": "legal", **DRAFTING}, {"name": "others", **DRAFTING}]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("adapters")
    base = make_checkpoint(folder / "base", logit_std=3.0)
    adapters = folder / "adapters"
    adapter = load_adapter(make_adapter(base, adapters / "legal"), load_config(open_checkpoint(base)), 16)
    target = merge(base, adapter, folder / "target")
    make_adapter(base, adapters / "wide", rank=20)
    with Cluster(folder) as cluster:
        cluster.verifier(target)
        cluster.drafter(base, "--adapters-dir", str(adapters), "--adapter", f"legal={adapters / 'legal'}")
        cluster.gateway(TENANTS)
        yield cluster


async def ask(cluster: Cluster, tenant: str) -> Answer:
    async with cluster.client(tenant) as client:
        return await client.generate(request([5, 6, 7, 8], max_tokens=40, temperature=0.0, ignore_eos=True))


def accepted(answer: Answer) -> float:
    usage = answer.last.usage
    assert usage.num_draft_tokens > 0
    share: float = usage.accepted_tokens / usage.num_draft_tokens
    return share


def adapters(cluster: Cluster, *words: str) -> list[str]:
    """What the drafter holds after `slipstream adapters ...`."""
    result = CliRunner().invoke(app, [*words, "--drafter", cluster.address("drafter"), "--json"])
    if result.exception is not None:
        raise result.exception
    (drafter,) = json.loads(result.stdout)["drafters"]
    return [one["name"] for one in drafter["adapters"]]


async def holds(cluster: Cluster, names: list[str]) -> bool:
    """One that was unloaded goes with its last sequence, whose end the drafter hears of after the client."""
    return await asyncio.to_thread(adapters, cluster, "list") == names


async def test_each_tenant_drafts_with_what_its_policy_names_and_the_text_is_the_targets(cluster: Cluster) -> None:
    lawyers, others = await ask(cluster, "lawyers"), await ask(cluster, "others")
    assert lawyers.token_ids == others.token_ids
    assert accepted(lawyers) > 0.9
    assert accepted(others) < 0.5


async def test_while_an_adapter_is_not_loaded_its_tenant_goes_on_without_and_drafts_when_it_is(
    cluster: Cluster,
) -> None:
    before = await ask(cluster, "lawyers")
    adapters(cluster, "unload", "legal")
    await eventually(partial(holds, cluster, []))
    without = await ask(cluster, "lawyers")
    assert (without.token_ids, without.last.usage.num_draft_tokens) == (before.token_ids, 0)
    assert accepted(await ask(cluster, "others")) < 0.5
    assert adapters(cluster, "load", "legal", "legal") == ["legal"]
    assert accepted(await ask(cluster, "lawyers")) > 0.9


@pytest.mark.parametrize(
    "words, reason",
    [
        (("unload", "mail"), "'mail' is not loaded here"),
        (("load", "mail", "../base"), "--adapters-dir"),
        (("load", "mail", "nowhere"), "adapter_config.json: cannot be read"),
        (("load", "mail", "wide"), r"r is 20; it must be in 1\.\.16"),
        (("load", "my mail", "legal"), "adapter name is 'my mail'"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name_and_changes_nothing(
    cluster: Cluster, words: tuple[str, ...], reason: str
) -> None:
    before = adapters(cluster, "list")
    with pytest.raises(Exception, match=reason):
        adapters(cluster, *words)
    assert adapters(cluster, "list") == before
