"""The page in a real browser: what it shows of a stream, that text stays text, and that it needs the key."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.gateway.fakes import DRAFTED, TOKENIZER, Client, FakeDrafter, FakeVerifier, eventually
from tests.gateway.watch.chromium import CHROMIUM, Tab, chromium_tab
from tests.gateway.watch.watching import KEY, watched_gateway

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here; install Debian's `chromium` to run it")

ids = TOKENIZER.encode
EVIL = "<img src=x onerror='document.title=1'>"


@pytest.fixture
async def tab(tmp_path: Path) -> AsyncIterator[Tab]:
    async with chromium_tab(tmp_path / "profile") as tab:
        yield tab


async def test_a_stream_is_seen_with_its_tokens_coloured_and_its_lanes(tab: Tab, tmp_path: Path) -> None:
    verifier, drafter = FakeVerifier([]), FakeDrafter([])
    async with watched_gateway(verifier, (drafter,), tenants=(DRAFTED,)) as (gateway, url):
        await tab.open(f"{url}/")
        await tab.until("document.getElementById('ask')?.hidden === false")
        await tab.value(f"document.getElementById('key').value = {json.dumps(KEY)}; 0")
        await tab.value("document.getElementById('ask').requestSubmit(); 0")
        await tab.until("document.getElementById('state').textContent === 'connected'")
        client = Client(gateway, DRAFTED, prompt=(10, 20, 30), max_tokens=60, request_id="seen-here")
        await eventually(lambda: verifier.opens and drafter.opens)
        sequence_id = verifier.opens[0].sequence_id
        drafter.draft(sequence_id, 3, [72, 73])
        verifier.commit(sequence_id, 3, ids("ab!"), num_accepted=2, num_draft_tokens=4, proposer="draft_model")
        verifier.commit(sequence_id, 6, ids("cd"), num_accepted=1, num_draft_tokens=1, proposer="draft_model")
        verifier.commit(sequence_id, 8, ids(EVIL))
        verifier.finish(sequence_id, 8 + len(ids(EVIL)), ids("."))
        await tab.until("document.querySelector('.stream.ended') !== null")
        pieces = await tab.value(
            "[...document.querySelectorAll('.text span')].map((one) => [one.className, one.textContent])"
        )
        facts = await tab.value("document.querySelector('.facts').textContent")
        await tab.until("document.getElementById('rate').textContent > 0")
        (tmp_path / "page.png").write_bytes(await tab.picture())
        await client.task
    merged = "".join(text for origin, text in pieces if origin == "plain")
    assert pieces[:6] == [
        ["accepted", "a"],
        ["accepted", "b"],
        ["recovered", "!"],
        ["rejected", "×2"],
        ["accepted", "c"],
        ["bonus", "d"],
    ]
    assert merged == EVIL + "."
    assert await tab.value("document.querySelectorAll('img').length + document.title") == "0Slipstream"
    assert "seen-here" in facts
    assert "draft_model: 60 % accepted" in facts
    assert facts.endswith("LENGTH")
    assert await _painted(tab, "verify")
    assert await _painted(tab, "draft")


async def test_a_key_may_come_with_the_address_which_it_leaves_and_a_wrong_one_is_asked_for_again(tab: Tab) -> None:
    async with watched_gateway(FakeVerifier([])) as (_, url):
        await tab.open(f"{url}/#wrong")
        await tab.until("document.getElementById('state')?.textContent.includes('not the operator')")
        await tab.until("document.getElementById('ask')?.hidden === false")
        await tab.open(f"{url}/#open%20sesame")
        await tab.until("document.getElementById('state')?.textContent === 'connected'")
        assert await tab.value("location.href") == f"{url}/"


async def _painted(tab: Tab, lane: str) -> bool:
    """Whether the timeline has pixels of the lane's colour; it scrolls on, so it is looked at while it is paused."""
    script = f"""(() => {{
      const probe = document.createElement("span");
      probe.style.color = "var(--{lane})";
      document.body.append(probe);
      const wanted = getComputedStyle(probe).color.match(/[0-9]+/g).map(Number);
      const canvas = document.getElementById("lanes");
      const data = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
      for (let i = 0; i < data.length; i += 4)
        if (wanted.every((value, j) => data[i + j] === value)) return true;
      return false;
    }})()"""
    return bool(await tab.value(script))
