"""Passes TCP bytes on to a service and counts them in both directions. Knows sockets; nothing of what the bytes say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

CHUNK = 1 << 16


@dataclass(slots=True)
class Traffic:
    """Of all connections. HTTP/2 frames and pings included."""

    num_to_service: int = 0
    num_from_service: int = 0

    def since(self, before: Traffic) -> Traffic:
        return Traffic(self.num_to_service - before.num_to_service, self.num_from_service - before.num_from_service)

    def copy(self) -> Traffic:
        return Traffic(self.num_to_service, self.num_from_service)


@asynccontextmanager
async def relayed(service: str) -> AsyncIterator[tuple[str, Traffic]]:
    """Where to connect instead of `service` (host:port), and what has passed there so far."""
    host, _, port = service.rpartition(":")
    traffic = Traffic()

    async def passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(host, int(port))

        def to_service(num_bytes: int) -> None:
            traffic.num_to_service += num_bytes

        def from_service(num_bytes: int) -> None:
            traffic.num_from_service += num_bytes

        async with asyncio.TaskGroup() as directions:
            directions.create_task(_pump(reader, there_writer, to_service))
            directions.create_task(_pump(there_reader, writer, from_service))

    server = await asyncio.start_server(passed_on, "127.0.0.1", 0)
    try:
        own_host, own_port = server.sockets[0].getsockname()[:2]
        yield f"{own_host}:{own_port}", traffic
    finally:
        server.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, count: Callable[[int], None]) -> None:
    """Until one side closes."""
    with suppress(ConnectionError):
        while data := await reader.read(CHUNK):
            count(len(data))
            writer.write(data)
            await writer.drain()
    writer.close()
