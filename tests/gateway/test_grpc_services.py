"""All services of a gateway on one port, as reflection describes them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent import futures
from typing import Any, cast

import grpc
import pytest
from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc

from gateway.gateway import Gateway
from gateway.grpc_services import SERVICE_NAMES, GrpcServices
from slipstream.wire.server import MethodSymbolPool

METHODS = [
    method.full_name
    for service in SERVICE_NAMES
    for method in descriptor_pool.Default().FindServiceByName(service).methods
]


@pytest.fixture(scope="module")
def stub() -> Iterator[Any]:
    server = grpc.server(futures.ThreadPoolExecutor(2))
    reflection.enable_server_reflection((*SERVICE_NAMES, reflection.SERVICE_NAME), server, MethodSymbolPool())
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield reflection_pb2_grpc.ServerReflectionStub(channel)
    server.stop(None)


def reflect(stub: Any, **request: str) -> reflection_pb2.ServerReflectionResponse:
    asked = reflection_pb2.ServerReflectionRequest(**request)
    return next(iter(stub.ServerReflectionInfo(iter([asked]), timeout=10)))


def test_both_services_are_listed(stub: Any) -> None:
    listed = {one.name for one in reflect(stub, list_services="*").list_services_response.service}
    assert {"slipstream.v1.Generation", "inference.GRPCInferenceService"} <= listed


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_described_by_its_own_symbol(stub: Any, method: str) -> None:
    found = reflect(stub, file_containing_symbol=method).file_descriptor_response.file_descriptor_proto
    pool = descriptor_pool.DescriptorPool()
    for data in reversed(found):  # what a file imports comes behind it
        pool.AddSerializedFile(data)
    described = pool.FindMethodByName(method)
    assert described.containing_service.full_name in SERVICE_NAMES
    assert FileDescriptorProto.FromString(found[0]).name in {"slipstream/v1/generation.proto", "grpc_service.proto"}


async def test_both_services_are_registered_whole() -> None:
    server = _Recorder()
    GrpcServices(cast(Gateway, None)).register(cast(grpc.aio.Server, server))
    assert {name.replace("/", ".") for name in server.methods} == set(METHODS)


class _Recorder:
    """In the place of a server: keeps the names of methods."""

    def __init__(self) -> None:
        self.methods: set[str] = set()

    def add_generic_rpc_handlers(self, handlers: Any) -> None:
        """Also told by the next one."""

    def add_registered_method_handlers(self, service: str, handlers: dict[str, Any]) -> None:
        self.methods |= {f"{service}/{name}" for name in handlers}
