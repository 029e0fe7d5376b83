"""Counters between two moments: differences, sums over what has the asked labels, means of histograms."""

from __future__ import annotations

import asyncio

import pytest

from bench.scraped import Scraped
from slipstream.metrics.endpoint import shown
from slipstream.metrics.instruments import Counter, Histogram


async def test_only_what_came_since_counts_and_labels_narrow_it() -> None:
    passes = Counter("passes", "Passes.", ("tenant", "proposer"))
    seconds = Histogram("step_seconds", "Steps.", ("tenant",))
    passes.add(5, "a", "x")
    async with shown("test", "127.0.0.1:0", [passes, seconds]) as address:
        before = await asyncio.to_thread(Scraped.of, address)
        passes.add(2, "a", "x")
        passes.add(3, "a", "y")
        passes.add(7, "b", "x")
        seconds.observe(0.5, "a")
        seconds.observe(1.5, "a")
        found = (await asyncio.to_thread(Scraped.of, address)).since(before)
    assert found.total("passes_total", tenant="a") == 5
    assert found.total("passes_total", proposer="x") == 9
    assert found.total("passes_total") == 12
    assert found.mean("step_seconds", tenant="a") == 1.0
    assert found.mean("step_seconds", tenant="nobody") == 0.0


def test_a_service_that_is_gone_is_named() -> None:
    with pytest.raises(RuntimeError, match=r"127\.0\.0\.1:1"):
        Scraped.of("127.0.0.1:1")
