"""`slipstream top` as it is typed: which services it looks at, and what it says without any."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from launcher.cli.top import app
from slipstream.errors import Unavailable
from slipstream.metrics.endpoint import shown
from tests.launcher.top.looks import tally

ONCE = ["--once", "--interval", "0.1", "--target", "nowhere:1"]


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, [*ONCE, *arguments], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


async def test_it_shows_services_that_are_named_by_their_metrics() -> None:
    async with shown("gateway", "127.0.0.1:0", [tally(2)]) as address:
        text = await asyncio.to_thread(run, "--metrics", address)
        view = json.loads(await asyncio.to_thread(run, "--metrics", address, "--json"))
    assert f"gateway {address}" in text
    assert "ngram" in text
    assert [service["kind"] for service in view["services"]] == ["gateway"]


def test_without_any_it_says_what_to_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with pytest.raises(Unavailable, match="give --metrics host:port"):
        run()
