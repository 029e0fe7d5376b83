"""What a service shows, read over HTTP, and what is made of one that is not there."""

from __future__ import annotations

import asyncio

from launcher.run_file import Listed
from launcher.top.look import look_at
from slipstream.metrics.endpoint import shown
from slipstream.metrics.instruments import Counter


async def test_samples_are_summed_over_the_labels_that_are_not_given() -> None:
    counter = Counter("things", "Things.", ("tenant", "proposer"))
    counter.add(1, "a", "x")
    counter.add(2, "a", "y")
    counter.add(4, "b", "x")
    async with shown("gateway", "127.0.0.1:0", [counter]) as address:
        services = [Listed(name="g", address="", metrics=address), Listed(name="gone", address="", metrics="h:1")]
        look, gone = await asyncio.to_thread(look_at, services)
    assert (look.total("things_total"), look.total("things_total", tenant="a")) == (7, 3)
    assert look.total("things_total", proposer="x") == 5
    assert look.values_of("things_total", "tenant") == {("a",), ("b",)}
    assert look.values_of("slipstream_build_info", "service") == {("gateway",)}
    assert (gone.name, gone.is_there, gone.total("things_total")) == ("gone", False, 0)
