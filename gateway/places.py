"""Who may run: a bounded number in all and of each tenant; some more wait in line. Knows tenants; knows no model."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.config import GatewayConfig
from gateway.fair_share import Capacity, UnknownCapacity, may_hold
from gateway.line import Line, Ticket, within_own_limit
from gateway.policy.tenants import Tenant
from slipstream.errors import DeadlineExceeded, Exhausted

ACTIVE_SECONDS: Final = 5.0  # for so long a tenant that was here has its share kept
_MIN_RETRY_SECONDS: Final = 0.1
_MAX_RETRY_SECONDS: Final = 60.0
_FIRST_GUESS: Final = 1.0  # seconds between two requests' ends, until some have ended
_WEIGHT: Final = 0.1  # of the newest interval in the mean


@dataclass(frozen=True, kw_only=True, slots=True)
class PlaceLimits:
    """Of one gateway; a tenant's own are in its policy."""

    max_running: int
    max_queued: int
    max_queued_per_tenant: int
    max_queue_seconds: float


def place_limits(config: GatewayConfig) -> PlaceLimits:
    return PlaceLimits(
        max_running=config.max_running,
        max_queued=config.max_queued,
        max_queued_per_tenant=config.max_queued_per_tenant,
        max_queue_seconds=config.max_queue_seconds,
    )


class Places:
    """Fair between tenants (line.py says how). A refusal says when trying again may help."""

    def __init__(
        self, limits: PlaceLimits, clock: Callable[[], float] = time.monotonic, capacity: Capacity | None = None
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._capacity = capacity or UnknownCapacity()
        self._running: Counter[str] = Counter()  # by tenant
        self._seen: dict[str, tuple[Tenant, float]] = {}  # when each last took or gave back a place
        self._line = Line()
        self._interval = _FIRST_GUESS
        self._last_end: float | None = None

    @property
    def num_running(self) -> int:
        return self._running.total()

    @property
    def num_queued(self) -> int:
        return len(self._line)

    def check(self, tenant: Tenant, num_places: int = 1) -> None:
        """Raises Exhausted if there is no room even in the line; cheap, so that it can come before all other work."""
        num_running, num_waiting = self._running[tenant.name], self._line.num_waiting(tenant)
        if num_running + num_waiting + num_places > tenant.max_concurrent:
            held = num_running + num_waiting
            raise self._refusal(
                f"tenant {tenant.name!r} has {held} requests running or waiting; its limit is {tenant.max_concurrent}"
            )
        if num_places <= self._room and self._may_hold(tenant, num_running + num_places):
            return
        if num_waiting + num_places > self._limits.max_queued_per_tenant:
            raise self._refusal(f"tenant {tenant.name!r} has {num_waiting} requests waiting, the most of one tenant")
        if self.num_queued + num_places > self._limits.max_queued and not self._line.may_displace(tenant):
            raise self._refusal(f"{self.num_running} requests run and {self.num_queued} wait, the most allowed")

    async def take(self, tenant: Tenant, deadline: float | None = None, num_places: int = 1) -> None:
        """Waits for places, all or none; a `give_back` for each must follow.

        Raises Exhausted, or DeadlineExceeded, and nothing is held.
        """
        self.check(tenant, num_places)
        self._seen[tenant.name] = tenant, self._clock()
        ticket = Ticket(tenant, asyncio.get_running_loop().create_future(), num_places)
        self._line.add(ticket)
        self._hand_out()
        if ticket.place.done():
            return
        if self.num_queued > self._limits.max_queued:
            gone = self._line.take_last().place
            gone.set_exception(self._refusal("the line is full and others' requests have more right to wait"))
        await self._wait(ticket, deadline)

    def give_back(self, tenant: Tenant) -> None:
        """One place."""
        self._note_end()
        self._seen[tenant.name] = tenant, self._clock()
        self._release(tenant, 1)

    def look_again(self) -> None:
        """There may be more places than before."""
        self._hand_out()

    @property
    def _num_places(self) -> int:
        """As many as verifiers run at one time: then who waits waits here, where it is fair."""
        return min(self._limits.max_running, self._capacity.num_seqs or self._limits.max_running)

    @property
    def _room(self) -> int:
        """One request of more samples than there are places may have them all, by itself."""
        return self._num_places - self.num_running if self._running else self._limits.max_running

    def _may_hold(self, tenant: Tenant, number: int) -> bool:
        if not within_own_limit(tenant, number):
            return False
        return not self._running[tenant.name] or may_hold(
            number, tenant, self._others(tenant), self._num_places, self._capacity
        )

    def _others(self, tenant: Tenant) -> dict[Tenant, int]:
        """Who runs something, waits, or did so a moment ago, and how much it runs."""
        since = self._clock() - ACTIVE_SECONDS
        self._seen = {name: seen for name, seen in self._seen.items() if self._running[name] or seen[1] > since}
        here = {name: one for name, (one, _) in self._seen.items()} | {one.name: one for one in self._line.tenants}
        return {one: self._running[name] for name, one in here.items() if name != tenant.name}

    async def _wait(self, ticket: Ticket, deadline: float | None) -> None:
        longest = self._limits.max_queue_seconds
        seconds = longest if deadline is None else min(longest, deadline - self._clock())
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                await ticket.place
        except BaseException as error:
            self._line.remove(ticket)
            if _was_given(ticket.place):
                self._release(ticket.tenant, ticket.num_places)  # it came in the same moment
            else:
                self._hand_out()  # who waited behind it may need fewer places
            if isinstance(error, TimeoutError):
                raise self._waited_too_long(seconds) from None
            raise

    def _waited_too_long(self, seconds: float) -> Exception:
        if seconds < self._limits.max_queue_seconds:
            return DeadlineExceeded("the deadline passed while the request waited for a place; nothing was computed")
        return self._refusal(f"no place became free within {seconds:g} s")

    def _hand_out(self) -> None:
        while ticket := self._line.take_next(self._running, self._room, self._may_hold):
            if not ticket.place.done():  # else its taker has left in this very moment
                self._running[ticket.tenant.name] += ticket.num_places
                ticket.place.set_result(None)

    def _release(self, tenant: Tenant, num_places: int) -> None:
        self._running[tenant.name] -= num_places
        if not self._running[tenant.name]:
            del self._running[tenant.name]
        self._hand_out()

    def _note_end(self) -> None:
        now = self._clock()
        if self._last_end is not None:
            self._interval += _WEIGHT * (now - self._last_end - self._interval)
        self._last_end = now

    def _refusal(self, text: str) -> Exhausted:
        """Trying again helps after what the line takes at the pace of late."""
        wait = min(max(_MIN_RETRY_SECONDS, self._interval * (self.num_queued + 1)), _MAX_RETRY_SECONDS)
        return Exhausted(f"{text}; try again later", retry_after_seconds=wait)


def _was_given(place: asyncio.Future[None]) -> bool:
    return place.done() and not place.cancelled() and place.exception() is None
