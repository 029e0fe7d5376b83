"""The gRPC services of a gateway: its own and KServe's, on one port. Knows which there are; knows no method."""

from __future__ import annotations

from typing import Final

import grpc
from tritonclient.grpc import service_pb2_grpc as kserve_grpc

from gateway.gateway import Gateway
from gateway.kserve.servicer import SERVICE_NAME, KServeServicer
from gateway.servicer import GenerationServicer
from slipstream.wire.v1 import generation_pb2, generation_pb2_grpc

SERVICE_NAMES: Final = (generation_pb2.DESCRIPTOR.services_by_name["Generation"].full_name, SERVICE_NAME)


class GrpcServices:
    def __init__(self, gateway: Gateway) -> None:
        self._generation = GenerationServicer(gateway)
        self._kserve = KServeServicer(gateway)

    def register(self, server: grpc.aio.Server) -> None:
        generation_pb2_grpc.add_GenerationServicer_to_server(self._generation, server)
        kserve_grpc.add_GRPCInferenceServiceServicer_to_server(self._kserve, server)

    async def drain(self) -> None:
        """Has streams end that would not by themselves."""
        await self._kserve.drain()
