"""The Generation service: unpack, one call, reply. Knows messages and metadata; the gateway does the work."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.admission import identified
from gateway.calls import Context, deadline_of, tenant_of, traced
from gateway.completion import Completion, Delta
from gateway.gateway import Gateway, Running
from gateway.messages import completion_from_wire, delta_to_wire, prompt_from_wire, samples_to_wire
from gateway.policy.tenants import Tenant
from gateway.refusals import refusing
from slipstream.wire.model_info import model_info_to_wire
from slipstream.wire.v1 import generation_pb2, generation_pb2_grpc

REQUEST_ID_KEY = "request-id"  # in the initial metadata


class GenerationServicer(generation_pb2_grpc.GenerationServicer):
    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def Generate(
        self, request: generation_pb2.GenerateRequest, context: Context
    ) -> AsyncIterator[generation_pb2.GenerateResponse]:
        async with self._complete(request, context) as running:
            async for delta in running.deltas:
                yield delta_to_wire(running.request_id, delta)

    async def GenerateOnce(
        self, request: generation_pb2.GenerateRequest, context: Context
    ) -> generation_pb2.GenerateResponse:
        async with self._complete(request, context) as running:
            samples = [Delta(index=index) for index in range(running.num_samples)]
            async for delta in running.deltas:
                samples[delta.index].append(delta)
            return samples_to_wire(running.request_id, samples)

    async def Tokenize(
        self, request: generation_pb2.TokenizeRequest, context: Context
    ) -> generation_pb2.TokenizeResponse:
        tenant_of(self._gateway, context)
        token_ids, tokens = await self._gateway.tokenize(request.model, prompt_from_wire(request.prompt))
        return generation_pb2.TokenizeResponse(token_ids=token_ids, tokens=tokens)

    async def ListModels(
        self, request: generation_pb2.ListModelsRequest, context: Context
    ) -> generation_pb2.ListModelsResponse:
        tenant_of(self._gateway, context)
        models = await self._gateway.models()
        return generation_pb2.ListModelsResponse(models=[model_info_to_wire(info) for info in models])

    @asynccontextmanager
    async def _complete(self, request: generation_pb2.GenerateRequest, context: Context) -> AsyncIterator[Running]:
        tenant, completion = self._read(request, context)
        await context.send_initial_metadata(((REQUEST_ID_KEY, completion.request_id),))
        async with self._gateway.complete(tenant, completion, deadline_of(context)) as running:
            yield running

    def _read(self, request: generation_pb2.GenerateRequest, context: Context) -> tuple[Tenant, Completion]:
        with refusing(self._gateway, request.request_id) as caller:
            tenant = tenant_of(self._gateway, context)
            caller.tenant = tenant.name
            return tenant, identified(traced(completion_from_wire(request), context))
