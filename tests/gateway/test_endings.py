"""An end is counted, logged, traced and told to who looks, under one request id."""

from __future__ import annotations

import logging

import pytest

from gateway.gateway import Gateway
from slipstream.logs import fields_of
from tests.gateway.fakes import Client, FakeVerifier, eventually, running_gateway
from tests.telemetry.memory import Memory


async def test_all_who_are_told_of_an_end_are_told_the_same(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "gateway.requests")
    verifier, memory = FakeVerifier([]), Memory()
    async with running_gateway([verifier]) as gateway:
        monkeypatch.setattr(gateway, "_tracer", memory.tracer)
        with gateway.feed.viewing() as viewer:
            client = Client(gateway, max_tokens=4, request_id="mine")
            await eventually(lambda: verifier.opens)
            verifier.finish(verifier.opens[0].sequence_id, 3, [40])
            await client.task
            events = await anext(viewer.batches(60.0))
    assert _counted(gateway) == 1
    assert [fields_of(record)["request"] for record in caplog.records if fields_of(record)] == ["mine"]
    assert memory.named("request")[0].attributes["slipstream.request"] == "mine"
    assert events[-1] == {"kind": "end", "stream": "mine/0", "outcome": "LENGTH"}


def _counted(gateway: Gateway) -> float:
    return gateway.metrics.requests.value("test", "LENGTH")
