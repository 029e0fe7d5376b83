"""The relay: bytes arrive as they were sent, and are counted by direction."""

from __future__ import annotations

import asyncio

from bench.relay import relayed


async def test_bytes_pass_both_ways_and_are_counted_apart() -> None:
    async def answer_twice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = await reader.readexactly(5)
        writer.write(data * 2)
        await writer.drain()
        writer.close()

    service = await asyncio.start_server(answer_twice, "127.0.0.1", 0)
    host, port = service.sockets[0].getsockname()
    async with service, relayed(f"{host}:{port}") as (address, traffic):
        before = traffic.copy()
        own_host, own_port = address.split(":")
        reader, writer = await asyncio.open_connection(own_host, int(own_port))
        writer.write(b"hello")
        assert await reader.read(-1) == b"hellohello"
        writer.close()
    counted = traffic.since(before)
    assert (counted.num_to_service, counted.num_from_service) == (5, 10)
