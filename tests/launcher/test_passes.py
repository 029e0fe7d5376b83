"""Acceptance read from Prometheus text, as the services' own counters show it."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.registry import Collector

from launcher.passes import PassTotals, passes_of, totals
from slipstream.exchange import Commit
from slipstream.metrics.endpoint import shown
from slipstream.metrics.passes import PassTally


def make_tally() -> PassTally:
    tally = PassTally()
    tally.add("a", Commit(1, 5, (1, 2, 3), num_accepted=2, num_draft_tokens=4, proposer="ngram"))
    tally.add("b", Commit(2, 5, (1,), num_accepted=0, num_draft_tokens=2, proposer="draft_model"))
    tally.add("b", Commit(2, 6, (1,)))
    return tally


EXPECTED = PassTotals(num_passes=3, num_committed=5, num_drafts=2, num_accepted=2)


def test_counts_are_summed_over_tenants_and_proposers() -> None:
    class Shown(Collector):
        collect = make_tally().collect  # type: ignore[assignment]

    registry = CollectorRegistry()
    registry.register(Shown())
    found = totals(generate_latest(registry).decode())
    assert found == EXPECTED
    assert found.acceptance_length == 1 + 2 / 2
    assert found.tokens_per_pass == pytest.approx(5 / 3)


async def test_they_are_read_from_where_a_service_shows_them() -> None:
    import asyncio

    async with shown("verifier", "127.0.0.1:0", [make_tally()]) as address:
        assert await asyncio.to_thread(passes_of, address, 5.0) == EXPECTED


def test_nobody_there_is_none_and_no_failure() -> None:
    assert passes_of("127.0.0.1:1", 1.0) is None


def test_nothing_yet_is_no_division_by_nothing() -> None:
    assert (PassTotals().acceptance_length, PassTotals().tokens_per_pass) == (1.0, 0.0)
