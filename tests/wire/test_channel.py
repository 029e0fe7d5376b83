"""The client channel: a peer that comes back is found again within about a second."""

from __future__ import annotations

import time

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from slipstream.wire.channel import open_channel


async def start_server(address: str) -> tuple[grpc.aio.Server, int]:
    server = grpc.aio.server(options=(("grpc.so_reuseport", 0),))
    health_pb2_grpc.add_HealthServicer_to_server(health.aio.HealthServicer(), server)
    port = server.add_insecure_port(address)
    await server.start()
    return server, port


async def test_a_peer_that_comes_back_is_found_within_two_seconds() -> None:
    server, port = await start_server("127.0.0.1:0")
    async with open_channel(f"127.0.0.1:{port}") as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        await stub.Check(health_pb2.HealthCheckRequest(), timeout=5)
        await server.stop(None)
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.Check(health_pb2.HealthCheckRequest(), timeout=5)
        server, _ = await start_server(f"127.0.0.1:{port}")
        start = time.monotonic()
        await stub.Check(health_pb2.HealthCheckRequest(), wait_for_ready=True, timeout=10)
        assert time.monotonic() - start < 2
    await server.stop(None)
