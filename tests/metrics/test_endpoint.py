"""Metrics over HTTP."""

from __future__ import annotations

import asyncio
import threading
import urllib.request

import pytest

from slipstream.metrics import endpoint
from slipstream.metrics.endpoint import check_address, shown
from slipstream.metrics.instruments import Counter


async def fetch(address: str) -> str:
    def read() -> str:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as reply:
            return str(reply.read(), "utf-8")

    return await asyncio.to_thread(read)


async def test_prometheus_text_is_served_on_the_port_that_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    drops = Counter("slipstream_drops", "Drops.")
    drops.add(3)
    async with shown("verifier", "127.0.0.1:0", [drops]) as address:
        text = await fetch(address)
    assert capsys.readouterr().out == f"METRICS verifier {address}\n"
    assert "# HELP slipstream_drops_total Drops.\n# TYPE slipstream_drops_total counter\n" in text
    assert "\nslipstream_drops_total 3.0\n" in text
    assert 'slipstream_build_info{service="verifier",version="' in text


async def test_nothing_is_left_at_the_end_and_the_port_is_free_again() -> None:
    before = threading.active_count()
    async with shown("verifier", "127.0.0.1:0", []) as address:
        pass
    async with shown("verifier", address, []):
        await fetch(address)
    assert threading.active_count() <= before + 1  # the loop's own pool may have started


async def test_who_says_nothing_loses_its_thread_and_nobody_hears_of_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(endpoint, "SILENT_SECONDS", 0.2)
    async with shown("verifier", "127.0.0.1:0", []) as address:
        host, _, port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()
        assert "slipstream_build_info" in await fetch(address)
    assert capsys.readouterr().err == ""


async def test_an_empty_address_serves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    async with shown("verifier", "", []) as address:
        assert address == ""
    assert capsys.readouterr().out == ""


async def test_a_port_in_use_is_named() -> None:
    async with shown("verifier", "127.0.0.1:0", []) as address:
        with pytest.raises(OSError, match=f"cannot show metrics on {address}"):
            async with shown("drafter", address, []):
                pass


@pytest.mark.parametrize("listen", ["here", "127.0.0.1:", "127.0.0.1:x", ":9100", "127.0.0.1:70000"])
def test_an_address_that_is_none_is_refused_with_the_value(listen: str) -> None:
    with pytest.raises(ValueError, match=f"metrics-listen is '{listen}'; it must be host:port"):
        check_address(listen)
