"""Exceptions and status codes: the table goes both ways, and servicers may simply raise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest

from slipstream import errors
from slipstream.wire import status
from slipstream.wire.channel import open_channel
from slipstream.wire.v1 import generation_pb2 as pb
from slipstream.wire.v1 import generation_pb2_grpc as rpc
from tests.wire.echo_service import EchoServicer

OURS = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, Exception) and value.__module__ == errors.__name__
]


@pytest.fixture
def servicer() -> EchoServicer:
    return EchoServicer()


@asynccontextmanager
async def serving(servicer: EchoServicer) -> AsyncIterator[str]:
    """The address that it is served on."""
    server = grpc.aio.server(interceptors=(status.StatusInterceptor(),))
    rpc.add_GenerationServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


@pytest.fixture
async def stub(servicer: EchoServicer) -> AsyncIterator[rpc.GenerationAsyncStub]:
    async with serving(servicer) as address, open_channel(address) as channel:
        yield rpc.GenerationStub(channel)


@pytest.mark.parametrize("kind", OURS)
def test_every_error_of_ours_survives_the_wire(kind: type[Exception]) -> None:
    code, text = status.to_status(kind("words"))
    back = status.from_status(status.number(code), text)
    assert type(back) is kind
    assert str(back) == "words"


def test_no_two_errors_share_a_code() -> None:
    codes = [status.to_status(kind("")) for kind in OURS]
    assert len(set(codes)) == len(OURS)


def test_any_other_error_is_internal_and_keeps_its_words_from_the_caller() -> None:
    code, text = status.to_status(ValueError("a secret"))
    assert code is grpc.StatusCode.INTERNAL
    assert text == "internal error (ValueError); the service's log says more"
    assert type(status.from_status(status.number(code), text)) is RuntimeError


@pytest.mark.parametrize("quoted", ["m" * 1_000_000, "\U0001f600" * 1_000_000])
async def test_a_text_that_quotes_megabytes_keeps_its_code_and_both_ends(
    stub: rpc.GenerationAsyncStub, quoted: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await stub.GenerateOnce(pb.GenerateRequest(model="UnknownModel", request_id=quoted + " is no model"), timeout=5)
    assert failed.value.code() is grpc.StatusCode.NOT_FOUND
    text = failed.value.details() or ""
    assert text.startswith("about " + quoted[:100])
    assert text.endswith(" is no model")


@pytest.mark.parametrize("kind", OURS)
async def test_a_servicer_that_raises_gives_code_and_text(stub: rpc.GenerationAsyncStub, kind: type[Exception]) -> None:
    request = pb.GenerateRequest(model=kind.__name__, request_id="r1")
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await stub.GenerateOnce(request, timeout=5)
    error = status.from_rpc_error(failed.value)
    assert type(error) is kind
    assert str(error) == "about r1"


async def test_want_of_room_says_when_to_try_again_and_nothing_else_does(stub: rpc.GenerationAsyncStub) -> None:
    advice = []
    for kind in ("Exhausted", "Unavailable"):
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await stub.GenerateOnce(pb.GenerateRequest(model=kind), timeout=5)
        advice.append(dict(failed.value.trailing_metadata() or ()).get(status.RETRY_AFTER_KEY))
    assert advice == ["1000", None]


async def test_a_stream_that_raises_gives_what_it_had_and_then_the_status(stub: rpc.GenerationAsyncStub) -> None:
    call = stub.Generate(pb.GenerateRequest(model="Exhausted", request_id="r2"), timeout=5)
    assert (await call.read()).request_id == "r2"  # type: ignore[union-attr]
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call.read()
    assert failed.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_the_generator_of_a_cancelled_call_is_closed(
    stub: rpc.GenerationAsyncStub, servicer: EchoServicer
) -> None:
    call = stub.Generate(pb.GenerateRequest(), timeout=5)
    await call.read()
    assert servicer.num_streams == 1
    call.cancel()
    async with asyncio.timeout(2):
        while servicer.num_streams:
            await asyncio.sleep(0.01)


async def test_an_internal_error_is_logged_with_its_method(
    stub: rpc.GenerationAsyncStub, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await stub.GenerateOnce(pb.GenerateRequest(model="KeyError"), timeout=5)
    assert failed.value.code() is grpc.StatusCode.INTERNAL
    assert "/slipstream.v1.Generation/GenerateOnce failed" in caplog.text


async def test_a_call_without_error_passes_through(stub: rpc.GenerationAsyncStub) -> None:
    assert (await stub.GenerateOnce(pb.GenerateRequest(request_id="r3"), timeout=5)).request_id == "r3"


@pytest.mark.parametrize("method", ["GenerateOnce", "Generate"])
async def test_bytes_that_are_no_message_are_the_callers_mistake(
    servicer: EchoServicer, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    async with serving(servicer) as address, open_channel(address) as channel:
        call = channel.unary_stream(f"/slipstream.v1.Generation/{method}")(b"\xff\xff", timeout=5)
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "2 bytes are no message of this method" in await call.details()
    assert not caplog.records


async def test_a_message_that_cannot_be_parsed_ends_a_stream_of_requests_as_the_callers_mistake() -> None:
    async def echo(requests: AsyncIterator[pb.GenerateRequest], context: object) -> AsyncIterator[pb.GenerateResponse]:
        async for request in requests:
            yield pb.GenerateResponse(request_id=request.request_id)

    method = grpc.stream_stream_rpc_method_handler(
        echo, pb.GenerateRequest.FromString, pb.GenerateResponse.SerializeToString
    )
    server = grpc.aio.server(interceptors=(status.StatusInterceptor(),))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test", {"Echo": method}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with open_channel(f"127.0.0.1:{port}") as channel:
        call = channel.stream_stream("/test/Echo")(timeout=5)
        await call.write(pb.GenerateRequest(request_id="r").SerializeToString())
        assert await call.read() == pb.GenerateResponse(request_id="r").SerializeToString()
        await call.write(b"\xff\xff")
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
    await server.stop(None)
