"""Streams in a process of their own: `python -m tests.chaos.reader ADDRESS TENANT NUM_STREAMS NUM_TOKENS`.

Prints `reading` when each has begun. Every stream has a connection of its own.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import grpc

from tests.chaos.load import stream
from tests.e2e.cluster import Client


async def read(address: str, tenant: str, num_streams: int, num_tokens: int) -> None:
    clients = [Client(address, tenant) for _ in range(num_streams)]
    calls = [client.stream(stream(index, num_tokens)) for index, client in enumerate(clients)]
    await asyncio.gather(*(call.read() for call in calls))
    print("reading", flush=True)
    await asyncio.gather(*(rest(call) for call in calls))


async def rest(call: Any) -> None:
    while await call.read() is not grpc.aio.EOF:
        pass


if __name__ == "__main__":
    asyncio.run(read(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
