"""The server of every service: readiness, health, reflection, limits, drain and exit, on a real process."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from slipstream.wire.v1 import generation_pb2 as pb
from slipstream.wire.v1 import generation_pb2_grpc as rpc
from tests.wire.echo_service import MAX_STREAMS

NAME = "slipstream.v1.Generation"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Echo:
    """The echo service as a process."""

    def __init__(self, listen: str = "127.0.0.1:0") -> None:
        command = [sys.executable, str(Path(__file__).with_name("echo_service.py")), listen]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def address(self) -> str:
        assert self.process.stdout is not None
        ready, name, address = self.process.stdout.readline().split()
        assert (ready, name) == ("READY", "echo")
        return address

    def channel(self) -> grpc.Channel:
        return grpc.insecure_channel(self.address())

    def end(self) -> tuple[int, str]:
        _, errors = self.process.communicate(timeout=10)
        return self.process.returncode, errors


@pytest.fixture
def echo() -> Iterator[Echo]:
    service = Echo()
    yield service
    service.process.kill()
    service.process.communicate(timeout=10)


def health(channel: grpc.Channel, service: str) -> int:
    stub = health_pb2_grpc.HealthStub(channel)
    status = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=5).status
    assert isinstance(status, int)
    return status


def reflect(channel: grpc.Channel, symbol: str) -> reflection_pb2.ServerReflectionResponse:
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    request = reflection_pb2.ServerReflectionRequest(file_containing_symbol=symbol)
    return next(iter(stub.ServerReflectionInfo(iter([request]), timeout=5)))


def test_it_says_where_it_is_ready_and_is_healthy_by_name(echo: Echo) -> None:
    with echo.channel() as channel:
        assert health(channel, "") == SERVING
        assert health(channel, NAME) == SERVING


@pytest.mark.parametrize("symbol", [NAME, f"{NAME}.Generate", "slipstream.v1.Usage", "slipstream.v1.Usage.seed"])
def test_reflection_finds_services_methods_messages_and_fields(echo: Echo, symbol: str) -> None:
    with echo.channel() as channel:
        response = reflect(channel, symbol)
    files = [FileDescriptorProto.FromString(b) for b in response.file_descriptor_response.file_descriptor_proto]
    assert [file.name for file in files] == ["slipstream/v1/generation.proto", "slipstream/v1/exchange.proto"]


def test_reflection_says_not_found_for_a_symbol_that_is_not_there(echo: Echo) -> None:
    with echo.channel() as channel:
        assert reflect(channel, f"{NAME}.Nothing").error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]


def test_a_message_beyond_the_limit_is_refused_and_the_server_lives(echo: Echo) -> None:
    with echo.channel() as channel:
        stub = rpc.GenerationStub(channel)
        with pytest.raises(grpc.RpcError) as refused:
            stub.GenerateOnce(pb.GenerateRequest(request_id="x" * (2 << 20)), timeout=5)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED  # type: ignore[attr-defined]
        assert stub.GenerateOnce(pb.GenerateRequest(request_id="small"), timeout=5).request_id == "small"


def test_a_connection_has_so_many_calls_at_one_time_and_the_next_waits_for_one_to_end(echo: Echo) -> None:
    with echo.channel() as channel:
        stub = rpc.GenerationStub(channel)
        streams = [stub.Generate(pb.GenerateRequest(request_id="a"), timeout=10) for _ in range(MAX_STREAMS)]
        for stream in streams:
            next(stream)
        with pytest.raises(grpc.RpcError) as late:
            stub.GenerateOnce(pb.GenerateRequest(), timeout=0.3)
        assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED  # type: ignore[attr-defined]
        streams[0].cancel()
        assert stub.GenerateOnce(pb.GenerateRequest(request_id="b"), timeout=5).request_id == "b"
        for stream in streams:
            stream.cancel()


def test_sigterm_drains_says_not_serving_and_ends_within_its_bound(echo: Echo) -> None:
    with echo.channel() as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=10)
        assert next(watch).status == SERVING
        stream = rpc.GenerationStub(channel).Generate(pb.GenerateRequest(request_id="a"), timeout=10)
        next(stream)
        start = time.monotonic()
        echo.process.send_signal(signal.SIGTERM)
        assert next(watch).status == NOT_SERVING
        assert next(stream).request_id == "a"  # a call in flight goes on while the server drains
        assert echo.end() == (0, "")
        assert 0.9 < time.monotonic() - start < 5
        with pytest.raises(grpc.RpcError) as cut:
            list(stream)
        assert cut.value.code() is grpc.StatusCode.UNAVAILABLE  # type: ignore[attr-defined]
        assert "shutting down" in cut.value.details()  # type: ignore[attr-defined]


def test_a_call_that_comes_while_the_server_drains_is_told_to_go_elsewhere(echo: Echo) -> None:
    with echo.channel() as channel:
        stub = rpc.GenerationStub(channel)
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=10)
        stream = stub.Generate(pb.GenerateRequest(request_id="a"), timeout=10)
        assert (next(watch).status, next(stream).request_id) == (SERVING, "a")
        echo.process.send_signal(signal.SIGTERM)
        assert next(watch).status == NOT_SERVING
        with pytest.raises(grpc.RpcError) as refused:
            stub.GenerateOnce(pb.GenerateRequest(), timeout=5)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE  # type: ignore[attr-defined]
        assert "shutting down" in refused.value.details()  # type: ignore[attr-defined]
        assert next(stream).request_id == "a"


def test_a_server_with_nothing_to_finish_ends_at_once_though_its_health_is_watched(echo: Echo) -> None:
    with echo.channel() as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=10)
        assert next(watch).status == SERVING
        start = time.monotonic()
        echo.process.send_signal(signal.SIGTERM)
        assert echo.end() == (0, "")
        assert time.monotonic() - start < 0.9  # its bound is 1 s


def test_a_second_signal_ends_at_once(echo: Echo) -> None:
    with echo.channel() as channel:
        stream = rpc.GenerationStub(channel).Generate(pb.GenerateRequest(), timeout=10)
        next(stream)
        echo.process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        start = time.monotonic()
        echo.process.send_signal(signal.SIGINT)
        assert echo.end()[0] == 0
        assert time.monotonic() - start < 0.7


def test_a_fatal_failure_is_not_serving_then_an_exit_that_says_why(echo: Echo) -> None:
    with echo.channel() as channel:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest(), timeout=10)
        assert next(watch).status == SERVING
        rpc.GenerationStub(channel).GenerateOnce(pb.GenerateRequest(model="die"), timeout=5)
        assert next(watch).status == NOT_SERVING
        code, errors = echo.end()
    assert code == 1
    assert errors.splitlines()[-1] == "RuntimeError: echo stopped: the engine died"


def test_a_port_in_use_is_named(echo: Echo) -> None:
    address = echo.address()
    second = Echo(address)
    code, errors = second.end()
    assert code == 1
    assert errors.splitlines()[-1] == f"error: cannot listen on {address}; is another process using the port?"


@pytest.mark.parametrize("listen", ["8000", "localhost:", ":80", "localhost:http", "127.0.0.1:70000"])
def test_a_listen_address_that_is_none_is_named(listen: str) -> None:
    code, errors = Echo(listen).end()
    assert (code, errors) == (2, f"error: listen is {listen!r}; it must be host:port, such as 127.0.0.1:0\n")
