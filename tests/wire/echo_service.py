"""A service of nothing but the wire, for the tests beside it: `python echo_service.py LISTEN`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc

from slipstream import errors
from slipstream.wire.part import Part
from slipstream.wire.server import ServerConfig, run, serve
from slipstream.wire.v1 import generation_pb2 as pb
from slipstream.wire.v1 import generation_pb2_grpc as rpc

NAME = "slipstream.v1.Generation"


MAX_STREAMS = 16


class EchoServicer(rpc.GenerationServicer):
    """Raises the exception of slipstream.errors that the model's name says; `Generate` echoes for ever."""

    def __init__(self, failure: asyncio.Future[None] | None = None) -> None:
        self.failure = failure
        self.num_streams = 0

    async def GenerateOnce(self, request: pb.GenerateRequest, context: Any) -> pb.GenerateResponse:
        if request.model == "die":
            assert self.failure is not None
            self.failure.set_exception(RuntimeError("the engine died"))
        elif request.model:
            raise getattr(errors, request.model, KeyError)(f"about {request.request_id}")
        return pb.GenerateResponse(request_id=request.request_id)

    async def Generate(self, request: pb.GenerateRequest, context: Any) -> AsyncIterator[pb.GenerateResponse]:
        self.num_streams += 1
        try:
            while True:
                yield pb.GenerateResponse(request_id=request.request_id)
                if request.model:
                    raise getattr(errors, request.model)(f"about {request.request_id}")
                await asyncio.sleep(0.01)
        finally:
            self.num_streams -= 1


async def main(listen: str) -> None:
    failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def register(server: grpc.aio.Server) -> None:
        rpc.add_GenerationServicer_to_server(EchoServicer(failure), server)

    config = ServerConfig(
        listen=listen, drain_seconds=1.0, max_message_bytes=1 << 20, max_concurrent_streams=MAX_STREAMS
    )
    await serve("echo", Part(service_names=(NAME,), register=register), config, failure=failure)


if __name__ == "__main__":
    run(main(sys.argv[1]))
