"""The KServe v2 service: unpack, one call, reply. Knows messages and metadata; the gateway does the work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Final

import grpc
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from gateway.calls import Context, deadline_of, tenant_of, traced
from gateway.gateway import Gateway
from gateway.kserve import model, shared_memory
from gateway.kserve.infer_request import InferRequest, read_infer_request
from gateway.kserve.inference import Inference
from gateway.kserve.shared_memory import Region, SharedMemoryRegions
from gateway.kserve.stream import InferStream
from gateway.policy.tenants import Tenant
from gateway.refusals import refusing
from slipstream.version import version

SERVICE_NAME: Final = str(pb.DESCRIPTOR.services_by_name["GRPCInferenceService"].full_name)
EXTENSIONS: Final = ("model_configuration", "model_repository", "statistics", "system_shared_memory")


class KServeServicer(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc]  # made without types
    """Whether the server lives and is ready needs no key; everything else is a tenant's."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._inference = Inference(gateway)
        self._regions = SharedMemoryRegions()
        self._closing = asyncio.Event()

    async def drain(self) -> None:
        """Streams end with what they were asked by now: one that nobody uses must not hold up the end."""
        self._closing.set()

    async def ServerLive(self, request: Any, context: Context) -> Any:
        return pb.ServerLiveResponse(live=True)

    async def ServerReady(self, request: Any, context: Context) -> Any:
        return pb.ServerReadyResponse(ready=self._gateway.is_serving)

    async def ServerMetadata(self, request: Any, context: Context) -> Any:
        return pb.ServerMetadataResponse(name="slipstream", version=version(), extensions=EXTENSIONS)

    async def ModelReady(self, request: Any, context: Context) -> Any:
        tenant_of(self._gateway, context)
        names = {info.name for info in await self._gateway.models()}
        return pb.ModelReadyResponse(ready=request.name in names and request.version in ("", model.VERSION))

    async def ModelMetadata(self, request: Any, context: Context) -> Any:
        return model.metadata(self._model(request, context))

    async def ModelConfig(self, request: Any, context: Context) -> Any:
        return model.configuration(self._model(request, context))

    async def ModelStatistics(self, request: Any, context: Context) -> Any:
        """Of one model, or of all if no name is given."""
        names = [self._model(request, context)] if request.name else await self._names(context)
        return pb.ModelStatisticsResponse(model_stats=[self._inference.statistics.to_wire(name) for name in names])

    async def RepositoryIndex(self, request: Any, context: Context) -> Any:
        return model.repository_index(await self._names(context))

    async def ModelInfer(self, request: Any, context: Context) -> Any:
        tenant = self._caller(context, request.id)
        return await self._inference.once(tenant, self._read(tenant, request, context), deadline_of(context))

    async def ModelStreamInfer(self, request: AsyncIterator[Any], context: Context) -> AsyncIterator[Any]:
        tenant = self._caller(context, "")

        def answer(one: Any) -> AsyncGenerator[Any, None]:
            return self._inference.responses(tenant, self._read(tenant, one, context), deadline_of(context))

        async with aclosing(InferStream(answer, self._closing).responses(request)) as responses:
            async for response in responses:
                yield response

    async def SystemSharedMemoryRegister(self, request: Any, context: Context) -> Any:
        region = Region(request.name, request.key, request.offset, request.byte_size)
        self._regions.register(self._local(context), region)
        return pb.SystemSharedMemoryRegisterResponse()

    async def SystemSharedMemoryUnregister(self, request: Any, context: Context) -> Any:
        self._regions.unregister(self._local(context), request.name)
        return pb.SystemSharedMemoryUnregisterResponse()

    async def SystemSharedMemoryStatus(self, request: Any, context: Context) -> Any:
        status = pb.SystemSharedMemoryStatusResponse.RegionStatus
        found = self._regions.registered(self._local(context), request.name)
        regions = {
            one.name: status(name=one.name, key=one.key, offset=one.offset, byte_size=one.num_bytes) for one in found
        }
        return pb.SystemSharedMemoryStatusResponse(regions=regions)

    async def _not_served(self, request: Any, context: Context) -> Any:
        text = "this gateway loads no models, traces nothing and reads no CUDA memory on a client's behalf"
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, text)

    RepositoryModelLoad = RepositoryModelUnload = _not_served
    CudaSharedMemoryStatus = CudaSharedMemoryRegister = CudaSharedMemoryUnregister = _not_served
    TraceSetting = LogSettings = _not_served

    def _caller(self, context: Context, request_id: str) -> Tenant:
        with refusing(self._gateway, request_id):
            return tenant_of(self._gateway, context)

    def _read(self, tenant: Tenant, request: Any, context: Context) -> InferRequest:
        def read_region(name: str, offset: int, num_bytes: int) -> bytes:
            shared_memory.check_local(context.peer())
            return self._regions.read(tenant.name, name, offset, num_bytes)

        with refusing(self._gateway, request.id, tenant.name):
            found = read_infer_request(request, read_region)
            return replace(found, completion=traced(found.completion, context))

    def _local(self, context: Context) -> str:
        """The name of a tenant that calls from this machine."""
        shared_memory.check_local(context.peer())
        return tenant_of(self._gateway, context).name

    def _model(self, request: Any, context: Context) -> str:
        """The model that a request names. Raises UnknownModel."""
        tenant_of(self._gateway, context)
        model.check_version(request.version)
        return self._gateway.catalog.find(request.name).info.name

    async def _names(self, context: Context) -> list[str]:
        tenant_of(self._gateway, context)
        return [info.name for info in await self._gateway.models()]
