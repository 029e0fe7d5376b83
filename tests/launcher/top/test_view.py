"""Rates and acceptance between two looks, from the counters that services really show."""

from __future__ import annotations

import json

import pytest

from launcher.top.look import Look
from launcher.top.view import DraftingView, ServiceView, make_view
from tests.launcher.top.looks import gateway, tally, verifier


def test_rates_are_of_what_happened_between_the_looks() -> None:
    view = make_view([gateway(10.0, tally(5))], [gateway(12.0, tally(9, num_plain=2))])
    drafted, plain = view.drafting
    assert drafted == DraftingView(
        tenant="a", proposer="ngram", tokens_per_second=6.0, passes_per_second=2.0, tokens_per_pass=3.0, acceptance=0.5
    )
    assert (plain.tenant, plain.proposer, plain.tokens_per_second, plain.acceptance) == ("b", "none", 1.0, None)
    assert view.services[0].tokens_per_second == 7.0
    assert (view.services[0].running, view.services[0].waiting) == (3, 2)


def test_a_verifier_shows_its_kv_and_the_mean_of_its_newest_steps() -> None:
    view = make_view([verifier(0.0, tally(0), 5)], [verifier(1.0, tally(2), 15)])
    (service,) = view.services
    assert (service.kv_blocks_used, service.kv_blocks_total, service.running) == (5, 10, 3)
    assert service.step_ms == pytest.approx(20.0)


def test_passes_that_gateway_and_verifier_both_count_are_counted_once() -> None:
    before = [verifier(0.0, tally(0), 0), gateway(0.0, tally(0))]
    after = [verifier(1.0, tally(4), 1), gateway(1.0, tally(4))]
    assert [one.passes_per_second for one in make_view(before, after).drafting] == [4.0]


def test_without_a_gateway_the_verifiers_count() -> None:
    view = make_view([verifier(0.0, tally(0), 0)] * 2, [verifier(1.0, tally(4), 1)] * 2)
    assert [one.passes_per_second for one in view.drafting] == [8.0]


def test_a_service_that_started_again_counts_from_nothing() -> None:
    view = make_view([gateway(0.0, tally(50))], [gateway(1.0, tally(4))])
    assert view.drafting[0].passes_per_second == 4.0


def test_one_that_is_gone_is_there_without_numbers() -> None:
    view = make_view([gateway(0.0, tally(1))], [Look(name="gateway", at=1.0)])
    assert view.services == (ServiceView(name="gateway", kind=""),)
    assert view.drafting == ()


def test_it_can_be_read_by_programs() -> None:
    view = json.loads(make_view([gateway(0.0, tally(0))], [gateway(1.0, tally(1))]).as_json_text())
    assert view["services"][0]["kind"] == "gateway"
    assert view["drafting"][0]["acceptance"] == 0.5
