"""The Generation service: unpack, one call, reply. Knows messages and metadata; the gateway does the work."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import grpc

from gateway.completion import Delta
from gateway.gateway import Gateway
from gateway.messages import completion_from_wire, delta_to_wire, prompt_from_wire
from gateway.tenants import Tenant
from slipstream.wire import codec
from slipstream.wire.v1 import generation_pb2, generation_pb2_grpc

Context = grpc.aio.ServicerContext[Any, Any]


class GenerationServicer(generation_pb2_grpc.GenerationServicer):
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def Generate(
        self, request: generation_pb2.GenerateRequest, context: Context
    ) -> AsyncIterator[generation_pb2.GenerateResponse]:
        tenant = self._tenant(context)
        async with self._gateway.complete(tenant, completion_from_wire(request), _deadline(context)) as running:
            async for delta in running.deltas:
                yield delta_to_wire(running.request_id, delta)

    async def GenerateOnce(
        self, request: generation_pb2.GenerateRequest, context: Context
    ) -> generation_pb2.GenerateResponse:
        tenant = self._tenant(context)
        async with self._gateway.complete(tenant, completion_from_wire(request), _deadline(context)) as running:
            whole = Delta()
            async for delta in running.deltas:
                whole.append(delta)
            return delta_to_wire(running.request_id, whole)

    async def Tokenize(
        self, request: generation_pb2.TokenizeRequest, context: Context
    ) -> generation_pb2.TokenizeResponse:
        self._tenant(context)
        token_ids, tokens = await self._gateway.tokenize(request.model, prompt_from_wire(request.prompt))
        return generation_pb2.TokenizeResponse(token_ids=token_ids, tokens=tokens)

    async def ListModels(
        self, request: generation_pb2.ListModelsRequest, context: Context
    ) -> generation_pb2.ListModelsResponse:
        self._tenant(context)
        models = await self._gateway.models()
        return generation_pb2.ListModelsResponse(models=[codec.model_info_to_wire(info) for info in models])

    def _tenant(self, context: Context) -> Tenant:
        metadata = context.invocation_metadata() or ()
        values = [value for name, value in metadata if name == "authorization"]
        return self._gateway.tenants.authenticate(str(values[0]) if values else "")


def _deadline(context: Context) -> float | None:
    remaining = context.time_remaining()
    return None if remaining is None else time.monotonic() + remaining
