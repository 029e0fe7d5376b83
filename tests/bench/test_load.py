"""Our own client under a ghz configuration, against a service that only echoes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from bench.ghz_config import LoadConfig, Step, load_config
from bench.load import run_load
from slipstream.wire.v1 import generation_pb2_grpc as rpc
from tests.wire.echo_service import EchoServicer

LOADTEST = Path(__file__).parents[2] / "loadtest"


@pytest.fixture
async def address() -> AsyncIterator[str]:
    server = grpc.aio.server()
    rpc.add_GenerationServicer_to_server(EchoServicer(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


def config_of(name: str, address: str) -> LoadConfig:
    return replace(load_config(LOADTEST / f"{name}.json"), host=address, total=12, concurrency=3, timeout=10.0)


async def test_so_many_requests_are_asked_at_one_time(address: str) -> None:
    told: list[str] = []
    (tally,) = await run_load(config_of("unary", address), told.append)
    assert dict(tally.statuses) == {"OK": 12}
    assert len(tally.calls) == 12
    assert not tally.firsts
    assert "3 at one time" in told[0]
    assert "{'OK': 12}" in told[0]


async def test_requests_of_a_schedule_come_at_their_rate(address: str) -> None:
    steps = (Step(50, 0.1), Step(100, 0.1))
    slow, fast = await run_load(replace(config_of("unary", address), steps=steps), lambda line: None)
    assert (slow.statuses.total(), fast.statuses.total()) == (5, 7)  # 12 in all


async def test_refusals_are_counted_by_status(address: str) -> None:
    (tally,) = await run_load(config_of("reflection", address), lambda line: None)
    assert dict(tally.statuses) == {"UNIMPLEMENTED": 12}
    assert "call -" in tally.line()
