"""Prometheus text is fetched, or it is said that there is none."""

from __future__ import annotations

import asyncio

from launcher.scrape import metrics_text
from slipstream.metrics.endpoint import shown


async def test_what_a_service_shows_is_fetched() -> None:
    async with shown("gateway", "127.0.0.1:0", []) as address:
        text = await asyncio.to_thread(metrics_text, address, 5.0)
    assert text is not None
    assert "slipstream_build_info" in text


def test_nobody_there_is_none_and_no_failure() -> None:
    assert metrics_text("127.0.0.1:1", 1.0) is None
