"""A service that is ready to be put on a port, alone or beside another. Knows how to register and drain; no port."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import grpc


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    service_name: str  # fully qualified, for health and reflection
    register: Callable[[grpc.aio.Server], None]
    drain: Callable[[], Awaitable[None]]  # returns when nobody waits for anything that it does


@dataclass(frozen=True, slots=True)
class Failure:
    """The first thing that went wrong for good in one process, whichever part of it says so."""

    future: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def happened(self) -> bool:
        return self.future.done()

    def tell(self, error: Exception) -> None:
        """On the event loop; what follows from the first is not told again."""
        if not self.happened:
            self.future.set_exception(error)
