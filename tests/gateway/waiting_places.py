"""Places with a clock that the test holds, and those who wait for one."""

from __future__ import annotations

import asyncio

from gateway.places import PlaceLimits, Places
from gateway.policy.tenants import Tenant

ACME = Tenant(name="acme", anonymous=True, max_concurrent=3)
ACME_UNBOUNDED = Tenant(name="acme", anonymous=True)
OTHER = Tenant(name="other", anonymous=True)


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def places(
    max_running: int = 1,
    max_queued: int = 2,
    max_queue_seconds: float = 5.0,
    clock: Clock | None = None,
    max_queued_per_tenant: int = 9,
) -> Places:
    limits = PlaceLimits(
        max_running=max_running,
        max_queued=max_queued,
        max_queued_per_tenant=max_queued_per_tenant,
        max_queue_seconds=max_queue_seconds,
    )
    return Places(limits, clock or Clock())


async def waiting(held: Places, tenant: Tenant = OTHER, deadline: float | None = None) -> asyncio.Task[None]:
    task = asyncio.create_task(held.take(tenant, deadline))
    await asyncio.sleep(0)
    return task
