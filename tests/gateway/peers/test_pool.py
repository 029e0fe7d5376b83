"""Several peers of one kind: choice by load, news of arrivals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import grpc
import pytest

from gateway.peers import load as peer_load
from gateway.peers import pool as pool_module
from gateway.peers.addresses import AddressBook
from gateway.peers.dialects import DrafterDialect
from gateway.peers.load import PeerLoad
from gateway.peers.pool import Pool
from gateway.proposers import DrafterPool
from slipstream.errors import InvalidRequest
from slipstream.exchange import ModelInfo, StepReport
from slipstream.request import SamplingParams, SequenceRequest
from tests.gateway.fakes import FakeDrafter, eventually
from tests.gateway.peers.test_link import Receiver
from tests.gateway.peers.test_load import Clock


@pytest.fixture
async def drafters() -> AsyncIterator[list[FakeDrafter]]:
    peers = [FakeDrafter([], name) for name in ("a", "b")]
    for peer in peers:
        await peer.start()
    yield peers
    for peer in peers:
        await peer.die()


@pytest.fixture
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "LOOK_SECONDS", 0.02)


@pytest.fixture
async def pool(drafters: list[FakeDrafter]) -> AsyncIterator[DrafterPool]:
    pool: DrafterPool = Pool([peer.address for peer in drafters], lambda address: DrafterDialect())
    task = asyncio.create_task(pool.run())
    await eventually(lambda: len(pool.available) == 2)
    yield pool
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def request(sequence_id: int) -> SequenceRequest:
    return SequenceRequest(sequence_id=sequence_id, token_ids=(1,), num_prompt_tokens=1, sampling=SamplingParams())


async def test_the_least_loaded_is_picked(pool: DrafterPool) -> None:
    picked = []
    for number in range(4):
        link = pool.pick(lambda info: True)
        assert link is not None
        link.open(request(number), Receiver())
        picked.append(link.address)
    assert sorted(picked) == sorted(2 * [link.address for link in pool.links])


async def test_who_has_others_sequences_is_passed_over(pool: DrafterPool) -> None:
    busy, idle = pool.links
    busy.load.note_step(StepReport(num_running=9), num_ours=0)
    assert {pool.pick(lambda info: True) for _ in range(8)} == {idle}


async def test_a_peer_that_has_just_come_back_is_not_overrun(
    pool: DrafterPool, drafters: list[FakeDrafter], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_load, "SLOW_START_SECONDS", 3600.0)
    back, stayed = pool.links
    clock = Clock()
    stayed.load = PeerLoad(clock)
    clock.now += 3600
    await drafters[0].die()
    await eventually(lambda: not back.available)
    await drafters[0].start()
    await eventually(lambda: back.available)
    picked = []
    for number in range(12):
        link = pool.pick(lambda info: True)
        assert link is not None
        link.open(request(number), Receiver())
        picked.append(link)
    assert picked.count(back) == 1  # a tenth


@pytest.mark.usefixtures("quick_looks")
@pytest.mark.parametrize("failure", [asyncio.CancelledError(), InvalidRequest("no model"), KeyError("x")])
async def test_a_peer_whose_load_cannot_be_told_costs_nobody_a_link(
    pool: DrafterPool, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    asked = []

    async def fails(dialect: DrafterDialect, channel: grpc.aio.Channel) -> ModelInfo:
        asked.append(dialect)
        raise failure

    monkeypatch.setattr(DrafterDialect, "describe", fails)
    await eventually(lambda: len(asked) >= 4)
    assert len(pool.available) == 2


@pytest.mark.usefixtures("quick_looks")
async def test_names_are_looked_up_again_and_who_leaves_finishes_what_it_has(
    drafters: list[FakeDrafter],
) -> None:
    present = ["127.0.0.1"]

    async def look_up(host: str, port: int) -> list[str]:
        return list(present)

    named = AddressBook([f"dns:///drafters:{drafters[0].port}"], look_up)
    pool: DrafterPool = Pool(named, lambda address: DrafterDialect())
    task = asyncio.create_task(pool.run())
    await eventually(lambda: pool.available)
    (link,) = pool.links
    link.open(request(1), Receiver())
    present.clear()
    await eventually(lambda: not pool.available)
    assert pool.links == [link]
    link.close(1)
    await eventually(lambda: not pool.links)
    present.append("127.0.0.1")
    await eventually(lambda: pool.available)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_only_those_that_serve_what_is_wanted_are_picked(pool: DrafterPool) -> None:
    assert pool.pick(lambda info: info.name == "another") is None


async def test_an_arrival_is_told_to_those_who_subscribed_and_only_while_they_are(
    pool: DrafterPool, drafters: list[FakeDrafter]
) -> None:
    told: list[str] = []
    pool.subscribe(lambda: told.append("stays"))
    leaver = lambda: told.append("left")  # noqa: E731
    pool.subscribe(leaver)
    pool.unsubscribe(leaver)
    await drafters[0].die()
    await eventually(lambda: len(pool.available) == 1)
    await drafters[0].start()
    await eventually(lambda: told == ["stays"])
