"""Events, published to whoever watches at present. Knows viewers; not what the events say, and no HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

from slipstream.errors import Exhausted

MAX_UNSENT: Final = 4096  # events of one viewer; about two seconds of a busy gateway
MAX_VIEWERS: Final = 16

Event = Mapping[str, Any]  # becomes one JSON object


class Viewer:
    """One watcher and its bounded queue. A watcher that does not keep up is dropped; nobody waits for it."""

    def __init__(self, max_unsent: int) -> None:
        self.is_dropped = False
        self._max_unsent = max_unsent
        self._unsent: list[Event] = []
        self._is_over = False
        self._wake = asyncio.Event()

    def put(self, event: Event) -> None:
        if self._is_over:
            return
        if len(self._unsent) >= self._max_unsent:
            self.is_dropped = True
            self.end()
            return
        self._unsent.append(event)
        self._wake.set()

    def end(self) -> None:
        """What still waits is not sent any more."""
        self._is_over = True
        self._unsent.clear()
        self._wake.set()

    async def batches(self, quiet_seconds: float) -> AsyncIterator[list[Event]]:
        """All that came since the last one, until it is over; an empty one if nothing came for so long."""
        while not self._is_over:
            with suppress(TimeoutError):
                async with asyncio.timeout(quiet_seconds):
                    await self._wake.wait()
            self._wake.clear()
            batch, self._unsent = self._unsent, []
            if not self._is_over:
                yield batch


class Feed:
    def __init__(self, max_unsent: int = MAX_UNSENT, max_viewers: int = MAX_VIEWERS) -> None:
        self._max_unsent = max_unsent
        self._max_viewers = max_viewers
        self._viewers: list[Viewer] = []

    @property
    def is_watched(self) -> bool:
        """Whether an event is worth making at all."""
        return bool(self._viewers)

    def publish(self, event: Event) -> None:
        for viewer in self._viewers:
            viewer.put(event)

    @contextmanager
    def viewing(self) -> Iterator[Viewer]:
        """Raises Exhausted if too many watch already."""
        if len(self._viewers) >= self._max_viewers:
            raise Exhausted(f"{len(self._viewers)} viewers watch already, the most there may be; close one")
        viewer = Viewer(self._max_unsent)
        self._viewers.append(viewer)
        try:
            yield viewer
        finally:
            self._viewers.remove(viewer)

    def end(self) -> None:
        """Drops all viewers: the gateway ends."""
        for viewer in self._viewers:
            viewer.end()
