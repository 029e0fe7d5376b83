"""Who may run and who waits."""

from __future__ import annotations

import asyncio

import pytest

from gateway.places import Places
from gateway.tenants import Tenant
from slipstream.errors import DeadlineExceeded, Exhausted

ACME = Tenant(name="acme", anonymous=True, max_concurrent=3)
OTHER = Tenant(name="other", anonymous=True)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def places(
    max_running: int = 1, max_queued: int = 2, max_queue_seconds: float = 5.0, clock: Clock | None = None
) -> Places:
    return Places(
        max_running=max_running, max_queued=max_queued, max_queue_seconds=max_queue_seconds, clock=clock or Clock()
    )


async def waiting(held: Places, tenant: Tenant = OTHER, deadline: float | None = None) -> asyncio.Task[None]:
    task = asyncio.create_task(held.take(tenant, deadline))
    await asyncio.sleep(0)
    return task


async def test_first_come_first_served() -> None:
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
    with pytest.raises(Exhausted, match="tenant 'acme' has 3 requests running, its limit"):
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
