"""Who may run: a bounded number in all and of each tenant; some more wait in line. Knows tenants; knows no model."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Final

from gateway.tenants import Tenant
from slipstream.errors import DeadlineExceeded, Exhausted

_MIN_RETRY_SECONDS: Final = 0.1
_MAX_RETRY_SECONDS: Final = 60.0
_FIRST_GUESS: Final = 1.0  # seconds between two requests' ends, until some have ended
_WEIGHT: Final = 0.1  # of the newest interval in the mean


class Places:
    """First come, first served. A request that is refused is told when trying again may help."""

    def __init__(
        self,
        *,
        max_running: int,
        max_queued: int,
        max_queue_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_running = max_running
        self._max_queued = max_queued
        self._max_queue_seconds = max_queue_seconds
        self._clock = clock
        self._held: Counter[str] = Counter()  # by tenant, places and waiting ones
        self._queue: deque[asyncio.Future[None]] = deque()
        self._interval = _FIRST_GUESS
        self._last_end: float | None = None
        self.num_running = 0

    @property
    def num_queued(self) -> int:
        return len(self._queue)

    def check(self, tenant: Tenant) -> None:
        """Raises Exhausted if there is no room even in the line; cheap, so that it can come before all other work."""
        if self._held[tenant.name] >= tenant.max_concurrent:
            raise Exhausted(
                f"tenant {tenant.name!r} has {tenant.max_concurrent} requests running, its limit; try again later",
                retry_after_seconds=self._retry_after(),
            )
        if self.num_running >= self._max_running and self.num_queued >= self._max_queued:
            raise Exhausted(
                f"{self.num_running} requests run and {self.num_queued} wait, the most allowed; try again later",
                retry_after_seconds=self._retry_after(),
            )

    async def take(self, tenant: Tenant, deadline: float | None = None) -> None:
        """Waits for a place; `give_back` must follow. Raises Exhausted, or DeadlineExceeded, and nothing is held."""
        self.check(tenant)
        self._held[tenant.name] += 1
        try:
            if self.num_running < self._max_running and not self._queue:
                self.num_running += 1
            else:
                await self._wait_in_line(deadline)
        except BaseException:
            self._release(tenant)
            raise

    def give_back(self, tenant: Tenant) -> None:
        self._note_end()
        self._release(tenant)
        self._leave()

    async def _wait_in_line(self, deadline: float | None) -> None:
        """Whoever leaves passes the place on, so that it need not be taken here."""
        left = self._max_queue_seconds if deadline is None else min(self._max_queue_seconds, deadline - self._clock())
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(place)
        try:
            async with asyncio.timeout(max(0.0, left)):
                await place
        except BaseException as error:
            if place.done() and not place.cancelled():
                self._leave()  # it came in the same moment
            elif place in self._queue:
                self._queue.remove(place)
            if isinstance(error, TimeoutError):
                raise self._waited_too_long(left) from None
            raise

    def _waited_too_long(self, seconds: float) -> Exception:
        if seconds < self._max_queue_seconds:
            return DeadlineExceeded("the deadline passed while the request waited for a place; nothing was computed")
        return Exhausted(
            f"no place became free within {seconds:g} s; try again later", retry_after_seconds=self._retry_after()
        )

    def _leave(self) -> None:
        """The next in line takes the place over."""
        while self._queue:
            place = self._queue.popleft()
            if not place.done():
                place.set_result(None)
                return
        self.num_running -= 1

    def _release(self, tenant: Tenant) -> None:
        self._held[tenant.name] -= 1
        if not self._held[tenant.name]:
            del self._held[tenant.name]

    def _note_end(self) -> None:
        now = self._clock()
        if self._last_end is not None:
            self._interval += _WEIGHT * (now - self._last_end - self._interval)
        self._last_end = now

    def _retry_after(self) -> float:
        """What the line takes at the pace of late."""
        return min(max(_MIN_RETRY_SECONDS, self._interval * (self.num_queued + 1)), _MAX_RETRY_SECONDS)
