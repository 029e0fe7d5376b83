"""How tenants are drafted, read from a gateway's metrics."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from io import StringIO

import pytest
from rich.console import Console

from bench.controller_machines import KINDS, MACHINES
from bench.drafting_simulation import Simulation
from gateway.control.decision_board import DecisionBoard
from gateway.policy.tenants import Tenant
from launcher.cli.ask import show_policies
from launcher.policy_status import REASONS, PolicyStatus, as_table, policies_in
from launcher.scrape import metrics_text
from slipstream.errors import Unavailable
from slipstream.metrics.endpoint import shown


def board() -> DecisionBoard:
    """Of a tenant whose chats were drafted for a while, in a simulation."""
    auto = Tenant(name="acme", anonymous=True, proposers=("auto",), num_draft_tokens=8)
    simulation = Simulation(MACHINES["gpu-8b"], auto, [KINDS["chat"]], 2)
    for _ in range(100):
        simulation.step()
    return DecisionBoard(lambda: simulation.controllers.all)


@pytest.fixture
async def address() -> AsyncIterator[str]:
    async with shown("gateway", "127.0.0.1:0", [board()]) as listening:
        yield listening


async def test_a_decision_is_read_back_with_its_promise_and_its_reason(address: str) -> None:
    text = await asyncio.to_thread(metrics_text, address, 5.0)
    assert text is not None
    (policy,) = policies_in(text)
    assert (policy.tenant, policy.temperature, policy.requests) == ("acme", "greedy", 2)
    assert "draft_model" in policy.way
    assert policy.goodput[policy.way] > policy.goodput["none"]
    assert policy.why == REASONS[policy.reason]
    assert 0.5 < policy.acceptance["draft_model"] < 0.9


async def test_it_is_shown_as_a_table_and_as_json(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    await asyncio.to_thread(show_policies, address, as_json=True)
    (policy,) = json.loads(capsys.readouterr().out)
    assert policy["why"] in REASONS.values()
    console = Console(width=160, record=True)
    console.print(as_table(policies_in(str(await asyncio.to_thread(metrics_text, address, 5.0)))))
    table = console.export_text()
    assert "acme" in table
    assert policy["why"] in table


def test_the_table_of_two_that_draft_keeps_its_words_whole_on_a_narrow_terminal() -> None:
    policy = PolicyStatus(tenant="lawyers", temperature="medium", way="ngram+draft_model", reason="best")
    policy.acceptance, policy.served = {"draft_model": 0.75}, {"draft_model": 0.5}
    console = Console(width=80, record=True, file=StringIO())
    console.print(as_table([policy]))
    first, second = (line.split() for line in console.export_text().splitlines()[2:4])
    assert first[:4] == ["lawyers", "medium", "ngram", "promises"]
    assert (second[0], second[-2:]) == ("draft_model", ["0.75", "0.50"])


def test_what_drafting_takes_from_passes_is_shown_where_it_takes_anything() -> None:
    free, dear = (PolicyStatus(tenant="a", way="none", reason="none_pays", price=price) for price in (0.01, 1.5))
    for policies, expected in (([free], False), ([free, dear], True)):
        console = Console(width=120, record=True, file=StringIO())
        console.print(as_table(policies))
        assert ("price" in console.export_text()) is expected


def test_a_gateway_whose_metrics_are_not_known_is_said_so() -> None:
    with pytest.raises(Unavailable, match="give --metrics host:port"):
        show_policies("", as_json=False)
    with pytest.raises(Unavailable, match=r"at 127\.0\.0\.1:1"):
        show_policies("127.0.0.1:1", as_json=False)
