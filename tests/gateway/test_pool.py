"""Several peers of one kind: choice by load, news of arrivals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from gateway.dialects import DrafterDialect
from gateway.pool import Pool
from gateway.proposers import DrafterPool
from slipstream.request import SamplingParams, SequenceRequest
from tests.gateway.fakes import FakeDrafter, eventually
from tests.gateway.test_link import Receiver


@pytest.fixture
async def drafters() -> AsyncIterator[list[FakeDrafter]]:
    peers = [FakeDrafter([], name) for name in ("a", "b")]
    for peer in peers:
        await peer.start()
    yield peers
    for peer in peers:
        await peer.die()


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
