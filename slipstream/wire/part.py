"""What is ready to be put on a port, alone or beside something else. Knows how to register and drain; no port."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import grpc


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    service_names: tuple[str, ...]  # fully qualified, for health and reflection
    register: Callable[[grpc.aio.Server], None]
    # Returns when nobody waits for anything that it does. None: when its calls, which end by themselves, are done.
    drain: Callable[[], Awaitable[None]] | None = None

    def beside(self, other: Part) -> Part:
        """Both on one port, where the other one drains; what this one does is then worth nothing."""

        def register(server: grpc.aio.Server) -> None:
            other.register(server)
            self.register(server)

        return Part(service_names=(*other.service_names, *self.service_names), register=register, drain=other.drain)


@dataclass(frozen=True, slots=True)
class Failure:
    """The first thing that went wrong for good in one process, whichever part of it says so."""

    future: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def happened(self) -> bool:
        return self.future.done()

    def report(self, error: Exception) -> None:
        """On the event loop. Only the first one counts: others follow from it."""
        if not self.happened:
            self.future.set_exception(error)
