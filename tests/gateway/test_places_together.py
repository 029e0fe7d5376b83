"""Places for several samples at once, and no more of them than the verifiers have."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from gateway.places import ACTIVE_SECONDS, PlaceLimits, Places
from slipstream.errors import Exhausted
from tests.gateway.waiting_places import ACME, ACME_UNBOUNDED, OTHER, Clock, places, waiting


async def test_places_for_several_samples_are_taken_all_or_none() -> None:
    held = places(max_running=3, max_queued=9)
    await held.take(OTHER)
    several = asyncio.create_task(held.take(OTHER, None, 3))
    await asyncio.sleep(0)
    assert (held.num_running, held.num_queued) == (1, 3), "two were free, and none of them is held meanwhile"
    behind = await waiting(held)
    assert not behind.done(), "nobody overtakes, or it might wait for ever"
    held.give_back(OTHER)
    await several
    assert (held.num_running, behind.done()) == (3, False)
    for _ in range(3):
        held.give_back(OTHER)
    await behind
    held.give_back(OTHER)
    assert (held.num_running, held.num_queued) == (0, 0)


async def test_each_sample_counts_against_the_tenants_limit() -> None:
    held = places(max_running=9)
    await held.take(ACME, None, 2)
    with pytest.raises(Exhausted, match="tenant 'acme' has 2 requests running or waiting; its limit is 3"):
        await held.take(ACME, None, 2)
    await held.take(ACME)
    assert held.num_running == 3


async def test_who_gives_up_waiting_for_several_places_leaves_nothing_held() -> None:
    held = places(max_running=2)
    await held.take(OTHER)
    several = asyncio.create_task(held.take(OTHER, None, 2))
    await asyncio.sleep(0)
    several.cancel()
    with suppress(asyncio.CancelledError):
        await several
    held.give_back(OTHER)
    assert (held.num_running, held.num_queued) == (0, 0)


async def test_when_a_large_request_gives_up_the_small_ones_behind_it_get_the_room() -> None:
    held = places(max_running=2, max_queued=9)
    await held.take(ACME)
    large = asyncio.create_task(held.take(OTHER, num_places=2))
    await asyncio.sleep(0)
    small = await waiting(held)
    assert not small.done()  # it does not overtake
    large.cancel()
    await asyncio.wait_for(small, 5)
    assert (held.num_running, held.num_queued) == (2, 0)


class Linear:
    """Verifiers of so many places, whose steps take as long as they have sequences."""

    def __init__(self, num_seqs: int) -> None:
        self.num_seqs = num_seqs

    def slowdown(self, many: int, few: int) -> float:
        return many / few


def beside_verifiers(capacity: Linear, clock: Clock, max_running: int = 256) -> Places:
    limits = PlaceLimits(max_running=max_running, max_queued=99, max_queued_per_tenant=99, max_queue_seconds=5.0)
    return Places(limits, clock, capacity)


async def test_no_more_run_than_the_verifiers_do_and_more_once_there_are_more() -> None:
    capacity = Linear(2)
    held = beside_verifiers(capacity, Clock())
    tasks = [await waiting(held) for _ in range(5)]
    assert (held.num_running, held.num_queued) == (2, 3)
    capacity.num_seqs = 4
    held.look_again()
    assert (held.num_running, held.num_queued) == (4, 1)
    for task in tasks:
        task.cancel()


async def test_a_flood_is_held_to_its_share_while_somebody_else_is_there_and_a_moment_longer() -> None:
    clock = Clock()
    held = beside_verifiers(Linear(8), clock)
    await held.take(ACME_UNBOUNDED)
    tasks = [await waiting(held) for _ in range(20)]
    assert held.num_running == 1 + 5  # its share is four places, and one of those that are free
    held.give_back(ACME_UNBOUNDED)
    held.give_back(OTHER)
    assert held.num_running == 4
    clock.now += ACTIVE_SECONDS + 1
    held.look_again()
    assert held.num_running == 8
    for task in tasks:
        task.cancel()


async def test_more_samples_than_there_are_places_run_by_themselves() -> None:
    held = beside_verifiers(Linear(2), Clock())
    await held.take(OTHER)
    many = asyncio.create_task(held.take(ACME_UNBOUNDED, None, 6))
    await asyncio.sleep(0)
    assert not many.done()
    held.give_back(OTHER)
    await many
    assert held.num_running == 6
