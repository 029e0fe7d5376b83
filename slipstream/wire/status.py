"""The one table from our exceptions to gRPC status codes, and back. Knows nothing of any service."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError

from slipstream import errors
from slipstream.wire.handlers import Behaviour, Handler, wrapped

_LOG = logging.getLogger(__name__)

# gRPC carries the text in a header, percent-encoded (12 bytes for some characters), and clients turn headers over 8 KiB
# into an error of another code.
MAX_TEXT_CHARS: Final = 600

RETRY_AFTER_KEY: Final = "retry-after-ms"

_TABLE: Final[tuple[tuple[type[Exception], grpc.StatusCode], ...]] = (
    (errors.InvalidRequest, grpc.StatusCode.INVALID_ARGUMENT),
    (errors.UnknownModel, grpc.StatusCode.NOT_FOUND),
    (errors.Unauthenticated, grpc.StatusCode.UNAUTHENTICATED),
    (errors.Exhausted, grpc.StatusCode.RESOURCE_EXHAUSTED),
    (errors.Unavailable, grpc.StatusCode.UNAVAILABLE),
    (errors.VocabularyMismatch, grpc.StatusCode.FAILED_PRECONDITION),
    (errors.DeadlineExceeded, grpc.StatusCode.DEADLINE_EXCEEDED),
    (errors.CheckpointError, grpc.StatusCode.DATA_LOSS),
)


def to_status(error: Exception) -> tuple[grpc.StatusCode, str]:
    """Anything but our own exceptions is INTERNAL, and tells the caller its type only."""
    for kind, code in _TABLE:
        if isinstance(error, kind):
            return code, _shortened(str(error))
    return grpc.StatusCode.INTERNAL, f"internal error ({type(error).__name__}); the service's log says more"


def from_status(code: int, text: str) -> Exception:
    """The exception that `to_status` was given, by its code's number; RuntimeError for a code we never send."""
    for kind, known in _TABLE:
        if number(known) == code:
            return kind(text)
    return RuntimeError(text)


def from_rpc_error(error: grpc.aio.AioRpcError) -> Exception:
    """What a failed call of ours to another service means in our own words."""
    return from_status(number(error.code()), error.details() or error.code().name)


def _shortened(text: str) -> str:
    """A text may quote what the caller sent; beginning and end of it say what was wrong."""
    if len(text) <= MAX_TEXT_CHARS:
        return text
    half = (MAX_TEXT_CHARS - 5) // 2
    return f"{text[:half]} ... {text[-half:]}"


def number(code: grpc.StatusCode) -> int:
    """google.rpc.Code of a status."""
    return int(code.value[0])


class StatusInterceptor(grpc.aio.ServerInterceptor):
    """Lets servicer methods raise our exceptions: the caller sees status and text, the log sees what was internal."""

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Handler | None:
        handler = await continuation(handler_call_details)
        return None if handler is None else _guarded_handler(handler, handler_call_details.method)


def _guarded_handler(handler: Handler, method: str) -> Any:
    parsed = _each_parsed if handler.request_streaming else _parsed
    parse = _parse_or_say_why_not(handler.request_deserializer)
    return wrapped(handler, lambda behaviour: _guarded(behaviour, method, parsed), parse)


def _parse_or_say_why_not(parse: Callable[[bytes], Any] | None) -> Callable[[bytes], Any]:
    """What grpc calls outside the servicer: an exception in it would be told as UNKNOWN, and logged as our fault."""

    def parse_or_say(data: bytes) -> Any:
        try:
            return parse(data) if parse else data
        except DecodeError as error:
            return errors.InvalidRequest(f"{len(data)} bytes are no message of this method: {error}")

    return parse_or_say


def _parsed(request: Any) -> Any:
    if isinstance(request, errors.InvalidRequest):
        raise request
    return request


async def _each_parsed(requests: AsyncIterator[Any]) -> AsyncIterator[Any]:
    async for request in requests:
        yield _parsed(request)


def _guarded(behaviour: Behaviour, method: str, parsed: Callable[[Any], Any]) -> Behaviour:
    async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
        try:
            return await behaviour(parsed(request), context)
        except Exception as error:
            await _abort(context, error, method)

    async def write_all(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        try:
            # Written here, not yielded on: grpc leaves the generator of a cancelled call open.
            async with aclosing(behaviour(parsed(request), context)) as responses:
                async for response in responses:
                    await context.write(response)
        except grpc.aio.InternalError:
            _LOG.debug("%s: the caller went while it was being written to", method)
        except Exception as error:
            await _abort(context, error, method)

    return write_all if inspect.isasyncgenfunction(behaviour) else call


async def _abort(context: grpc.aio.ServicerContext[Any, Any], error: Exception, method: str) -> None:
    if isinstance(error, grpc.aio.AbortError | asyncio.CancelledError):
        raise error
    code, text = to_status(error)
    if code is grpc.StatusCode.INTERNAL:
        _LOG.error("%s failed", method, exc_info=error)
    await context.abort(code, text, trailing_metadata=retry_advice(error))


def retry_advice(error: Exception) -> tuple[tuple[str, str], ...]:
    """Trailing metadata, or headers of HTTP, that say when to try again."""
    if isinstance(error, errors.Exhausted):
        return ((RETRY_AFTER_KEY, str(max(1, round(error.retry_after_seconds * 1e3)))),)
    return ()
