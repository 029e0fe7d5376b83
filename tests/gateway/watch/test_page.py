"""The page and its events over HTTP: who may see them, what they hold, what a slow viewer costs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import aiohttp
import pytest

from gateway.watch import page
from tests.gateway.fakes import DRAFTED, STEP_US, TOKENIZER, Client, FakeDrafter, FakeVerifier, eventually
from tests.gateway.watch.watching import KEY, viewing, watched_gateway

ids = TOKENIZER.encode
PARTS = ("/", "/watch/page.js", "/watch/page.css")


async def statuses(url: str, paths: tuple[str, ...], **headers: str) -> list[int]:
    async with aiohttp.ClientSession(headers=headers) as http:
        return [(await http.get(url + path)).status for path in paths]


async def test_without_a_key_there_is_no_page() -> None:
    async with watched_gateway(FakeVerifier([]), key_sha256="") as (_, url):
        assert await statuses(url, (*PARTS, "/watch/events")) == [404] * 4
        assert await statuses(url, ("/watch/events",), Authorization=f"Bearer {KEY}") == [404]


@pytest.mark.parametrize("authorization", ["", "Bearer wrong", "Bearer ", f"Basic {KEY}", f"Bearer {KEY}x"])
async def test_events_are_for_who_has_the_key(authorization: str) -> None:
    async with watched_gateway(FakeVerifier([])) as (gateway, url):
        assert await statuses(url, ("/watch/events",), Authorization=authorization) == [401]
        assert not gateway.feed.is_watched


async def test_the_page_needs_nothing_from_elsewhere_and_may_ask_nobody_else() -> None:
    async with watched_gateway(FakeVerifier([])) as (_, url), aiohttp.ClientSession() as http:
        for path in PARTS:
            async with http.get(url + path) as answer:
                text = await answer.text()
                assert answer.status == 200
                assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
                assert "unsafe" not in answer.headers["Content-Security-Policy"]
                assert "://" not in text


async def test_a_viewer_sees_each_pass_the_work_behind_it_and_the_end() -> None:
    verifier, drafter = FakeVerifier([]), FakeDrafter([])
    async with watched_gateway(verifier, (drafter,), tenants=(DRAFTED,)) as (gateway, url), viewing(url) as viewer:
        client = Client(gateway, DRAFTED, prompt=(10, 20, 30), max_tokens=8, request_id="mine")
        await eventually(lambda: verifier.opens and drafter.opens)
        sequence_id = verifier.opens[0].sequence_id
        drafter.draft(sequence_id, 3, [72, 73])
        batch = await viewer.next("work")
        assert (batch["lane"], batch["peer"], batch["work_us"]) == ("draft", drafter.address, 700)
        verifier.commit(
            sequence_id, 3, ids("Hi"), num_accepted=1, num_draft_tokens=3, proposer="draft_model", wait_us=40
        )
        step = await viewer.next("work")
        assert (step["lane"], step["peer"], step["work_us"]) == ("verify", verifier.address, STEP_US)
        verifier.finish(sequence_id, 5, ids("!"))
        shown = await viewer.next("pass")
        assert shown["pieces"] == [["H", "accepted"], ["i", "recovered"]]
        assert [shown[name] for name in ("request", "tenant", "model")] == ["mine", "drafted", "tiny"]
        assert [shown[name] for name in ("tokens", "drafted", "accepted", "wait_us")] == [2, 3, 1, 40]
        end = await viewer.next("end")
        assert (end["stream"], end["outcome"]) == (shown["stream"], "LENGTH")
        await client.task


async def test_who_looks_away_costs_nothing_any_more() -> None:
    async with watched_gateway(FakeVerifier([])) as (gateway, url):
        async with viewing(url):
            assert gateway.feed.is_watched
        await eventually(lambda: not gateway.feed.is_watched)


async def test_a_viewer_that_does_not_read_is_cut_off_and_slows_no_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "PATIENCE_SECONDS", 0.2)
    verifier = FakeVerifier([])
    async with watched_gateway(verifier) as (gateway, url):
        host, port = url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port), limit=1024)
        writer.write(f"GET /watch/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n\r\n".encode())
        await eventually(lambda: gateway.feed.is_watched)
        client = Client(gateway, prompt=(10, 20, 30), max_tokens=8)
        await eventually(lambda: verifier.opens)
        for _ in range(200):  # more than sockets hold
            if not gateway.feed.is_watched:
                break
            gateway.feed.publish({"kind": "noise", "text": "x" * 100_000})
            await asyncio.sleep(0.02)
        await eventually(lambda: not gateway.feed.is_watched)
        verifier.finish(verifier.opens[0].sequence_id, 3, ids("!"))
        await client.task
        assert client.text == "!"
        writer.close()


async def test_the_gateways_end_does_not_wait_for_viewers() -> None:
    async with asyncio.timeout(8):  # an ending server gives requests in flight ten seconds
        async with watched_gateway(FakeVerifier([])) as (_, url):
            viewer = viewing(url)
            await viewer.__aenter__()
    await viewer.__aexit__(None, None, None)


def test_a_quiet_line_is_kept_and_events_are_one_line() -> None:
    told = page.event_text([{"kind": "pass", "text": "a\n\nb"}])
    assert told.count(b"\n") == 2
    assert json.loads(told.removeprefix(b"data: ")) == [{"kind": "pass", "text": "a\n\nb"}]


def test_the_parts_are_packaged() -> None:
    folder = Path(page.__file__).parent
    assert all((folder / name).is_file() for name in ("page.html", "page.js", "page.css"))
