"""Who may run and who waits."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import pytest

from gateway.policy.tenants import Tenant
from slipstream.errors import DeadlineExceeded, Exhausted
from tests.gateway.waiting_places import ACME, ACME_UNBOUNDED, OTHER, Clock, places, waiting


async def test_of_one_tenant_who_came_first_goes_first() -> None:
    held = places()
    await held.take(ACME)
    first, second = await waiting(held), await waiting(held)
    held.give_back(ACME)
    await first
    assert (second.done(), held.num_running, held.num_queued) == (False, 1, 1)
    held.give_back(OTHER)
    await second
    held.give_back(OTHER)
    assert (held.num_running, held.num_queued) == (0, 0)


async def test_a_full_line_refuses_at_once() -> None:
    held = places(max_queued=1)
    await held.take(ACME)
    first = await waiting(held)
    with pytest.raises(Exhausted, match="1 requests run and 1 wait, the most allowed"):
        await held.take(OTHER)
    held.give_back(ACME)
    await first


async def test_a_tenants_limit_counts_those_in_line_and_concerns_no_other() -> None:
    held = places(max_running=2, max_queued=9)
    for _ in range(2):
        await held.take(ACME)
    await waiting(held, ACME)
    with pytest.raises(Exhausted, match="tenant 'acme' has 3 requests running or waiting; its limit"):
        held.check(ACME)
    held.check(OTHER)


async def test_who_leaves_the_line_holds_nothing() -> None:
    held = places()
    await held.take(ACME)
    gone, next_one = await waiting(held), await waiting(held)
    gone.cancel()
    await asyncio.wait([gone])
    assert held.num_queued == 1
    held.give_back(ACME)
    await next_one
    held.give_back(OTHER)
    assert (held.num_running, held.num_queued) == (0, 0)


async def test_a_place_that_comes_as_its_taker_leaves_goes_to_the_next() -> None:
    held = places()
    await held.take(ACME)
    gone, next_one = await waiting(held), await waiting(held)
    held.give_back(ACME)
    gone.cancel()
    await next_one
    assert held.num_running == 1


async def test_nobody_waits_longer_than_allowed() -> None:
    held = places(max_queue_seconds=0.02)
    await held.take(ACME)
    with pytest.raises(Exhausted, match=r"no place became free within 0\.02 s"):
        await held.take(OTHER)
    with pytest.raises(DeadlineExceeded, match="the deadline passed while the request waited"):
        await held.take(OTHER, deadline=100.001)
    assert (held.num_running, held.num_queued) == (1, 0)


async def test_a_refusal_says_what_the_line_takes_at_the_pace_of_late() -> None:
    clock = Clock()
    held = places(max_running=1, max_queued=1, clock=clock)
    for _ in range(200):
        await held.take(ACME)
        clock.now += 0.5
        held.give_back(ACME)
    await held.take(ACME)
    await waiting(held)
    with pytest.raises(Exhausted) as refused:
        held.check(ACME)
    assert refused.value.retry_after_seconds == pytest.approx(1.0, rel=0.01)  # one in line, then one's own turn


async def test_a_flood_is_in_its_own_way_only() -> None:
    held = places(max_running=4, max_queued=99)
    for _ in range(4):
        await held.take(ACME_UNBOUNDED)
    flood = [await waiting(held, ACME_UNBOUNDED) for _ in range(9)]
    late = [await waiting(held) for _ in range(3)]
    for _ in range(2):
        held.give_back(ACME_UNBOUNDED)
    await asyncio.gather(*late[:2])
    assert not any(task.done() for task in flood)
    held.give_back(ACME_UNBOUNDED)  # now it has one place for its two
    await flood[0]
    for task in (*flood, *late):
        task.cancel()


async def test_a_tenant_runs_no_more_than_it_may_though_places_are_free() -> None:
    few = Tenant(name="few", anonymous=True, max_running=1)
    held = places(max_running=3)
    await held.take(few)
    second = await waiting(held, few)
    assert (held.num_running, held.num_queued, second.done()) == (1, 1, False)
    await held.take(OTHER)  # the line is not in its way
    held.give_back(few)
    await second


async def test_one_tenants_line_is_bounded_by_itself() -> None:
    held = places(max_queued=9, max_queued_per_tenant=1)
    await held.take(OTHER)
    first = await waiting(held)
    with pytest.raises(Exhausted, match="tenant 'other' has 1 requests waiting, the most of one tenant"):
        held.check(OTHER)
    held.check(ACME)
    first.cancel()


async def test_a_full_line_makes_room_for_who_has_less_of_it() -> None:
    held = places(max_queued=2)
    await held.take(OTHER)
    stays, pushed_out = await waiting(held), await waiting(held)
    newcomer = await waiting(held, ACME)
    with pytest.raises(Exhausted, match="others' requests have more right to wait"):
        await pushed_out
    assert (held.num_queued, stays.done(), newcomer.done()) == (2, False, False)
    with pytest.raises(Exhausted, match="1 requests run and 2 wait"):
        held.check(ACME)  # it would have more than the other now
    stays.cancel()
    newcomer.cancel()


async def test_a_deadline_in_the_line_is_told_in_time_and_leaks_no_place() -> None:
    held = places(max_running=1, max_queued=9)
    await held.take(ACME)
    short = [await waiting(held, OTHER, deadline=100.01) for _ in range(3)]
    patient = await waiting(held)
    for task in short:
        with pytest.raises(DeadlineExceeded):
            await asyncio.wait_for(task, 5)
    held.give_back(ACME)
    await patient
    held.give_back(OTHER)
    assert (held.num_running, held.num_queued) == (0, 0)
    await held.take(OTHER)


async def test_whoever_comes_and_goes_all_places_come_back() -> None:
    """Requests that end, are cancelled or time out at random moments, some of them as their place comes."""
    dice = random.Random(1)
    held = places(max_running=3, max_queued=6, max_queue_seconds=0.02, clock=Clock())

    async def one(tenant: Tenant) -> None:
        with suppress(Exhausted, DeadlineExceeded):
            await held.take(tenant, 100 + dice.random() * 0.02)
            try:
                await asyncio.sleep(dice.random() * 0.01)
            finally:
                held.give_back(tenant)

    tasks = []
    for _ in range(300):
        tasks.append(asyncio.create_task(one(dice.choice((ACME, ACME_UNBOUNDED, OTHER)))))
        await asyncio.sleep(dice.random() * 0.003)
        if dice.random() < 0.3:
            dice.choice(tasks).cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert (held.num_running, held.num_queued) == (0, 0)
    for _ in range(3):
        await held.take(OTHER)
