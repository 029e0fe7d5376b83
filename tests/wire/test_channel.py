"""The client channel: a peer that comes back is found again within about a second, one that hangs is given up."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from slipstream.wire.channel import open_channel
from slipstream.wire.v1 import generation_pb2 as pb
from slipstream.wire.v1 import generation_pb2_grpc as rpc


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


@pytest.mark.slow
async def test_a_peer_that_stands_still_is_given_up_within_twenty_seconds() -> None:
    """Its kernel still takes bytes, so that only a ping without an answer tells."""
    command = [sys.executable, str(Path(__file__).with_name("echo_service.py")), "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split()[-1]
            async with open_channel(address) as channel, asyncio.timeout(20):
                call = rpc.GenerationStub(channel).Generate(pb.GenerateRequest())
                await call.read()
                process.send_signal(signal.SIGSTOP)
                assert await call.code() is grpc.StatusCode.UNAVAILABLE
        finally:
            process.kill()
