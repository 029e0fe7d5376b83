"""A handler that is made again keeps everything but its behaviour."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from slipstream.wire.handlers import Behaviour, wrapped

KINDS = ["unary_unary", "unary_stream", "stream_unary", "stream_stream"]


def behaviour(request: Any, context: Any) -> Any:
    return request


def louder(inner: Behaviour) -> Behaviour:
    return lambda request, context: inner(request, context) + "!"


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_call_is_wrapped_and_keeps_how_it_reads_and_writes(kind: str) -> None:
    handler = getattr(grpc, f"{kind}_rpc_method_handler")(behaviour, bytes.decode, str.encode)
    made = wrapped(handler, louder)
    assert (made.request_streaming, made.response_streaming) == tuple(side == "stream" for side in kind.split("_"))
    assert (made.request_deserializer, made.response_serializer) == (bytes.decode, str.encode)
    assert getattr(made, kind)("request", None) == "request!"


def test_another_way_to_read_requests_takes_the_place_of_its_own() -> None:
    handler = grpc.unary_unary_rpc_method_handler(behaviour, bytes.decode, str.encode)
    assert wrapped(handler, louder, bytes.hex).request_deserializer is bytes.hex
