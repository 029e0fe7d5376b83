"""A method's handler made again around another behaviour. Knows the four kinds of calls; no service and no message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import grpc

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Behaviour = Callable[[Any, Any], Any]  # of (request or requests, context): a coroutine or an async generator


def wrapped(
    handler: Handler, wrap: Callable[[Behaviour], Behaviour], parse: Callable[[bytes], Any] | None = None
) -> Any:
    """The same method with its behaviour wrapped; `parse` takes the place of its own way to read a request."""
    sides = ("unary", "stream")
    kind = f"{sides[handler.request_streaming]}_{sides[handler.response_streaming]}"
    make = getattr(grpc, f"{kind}_rpc_method_handler")  # as grpc itself names them, and the behaviour by its kind
    return make(wrap(getattr(handler, kind)), parse or handler.request_deserializer, handler.response_serializer)
