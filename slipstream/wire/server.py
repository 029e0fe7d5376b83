"""One gRPC server on one event loop: health, reflection, limits, TLS, drain. Knows nothing of what the services do."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import grpc
import uvloop
from google.protobuf import descriptor_pool
from google.protobuf.descriptor import FileDescriptor
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from slipstream.errors import CheckpointError
from slipstream.parallel.failure import RanksFailed
from slipstream.wire.calls import Calls
from slipstream.wire.channel import MAX_MESSAGE_BYTES
from slipstream.wire.part import Part
from slipstream.wire.status import StatusInterceptor
from slipstream.wire.tls import ServerTls

_LOG = logging.getLogger(__name__)

MAX_PORT = 65535
_LAST_WRITE_SECONDS = 0.1  # for the last answer's status, after its call is done


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerConfig:
    """Where one server listens, what it takes from its peers, and how long it lets them finish."""

    listen: str  # host:port, port 0 = any free one
    tls: ServerTls | None = None  # None: plaintext
    max_message_bytes: int = MAX_MESSAGE_BYTES
    max_concurrent_streams: int = 1024  # calls of one connection
    drain_seconds: float = 10.0  # after SIGTERM, for calls in flight


class Readiness:
    """Whether a service can do its work at present; what health says follows it."""

    def __init__(self, *, ready: bool) -> None:
        self._ready = ready
        self._changed = asyncio.Event()
        self._changed.set()

    def set(self, ready: bool) -> None:
        if ready != self._ready:
            self._ready = ready
            self._changed.set()

    async def changes(self) -> AsyncIterator[bool]:
        """The present state, then every later one; of several in one tick the last."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            yield self._ready


def run(service: Coroutine[Any, Any, None]) -> None:
    """Runs a service's main coroutine on uvloop until it ends; what an operator can mend is one line, no traceback."""
    try:
        uvloop.run(service)
    except (ValueError, OSError, CheckpointError, RanksFailed) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, ValueError) else 1)


async def serve(
    name: str,  # as the READY line tells it
    part: Part,
    config: ServerConfig,
    *,
    failure: asyncio.Future[None] | None = None,
    readiness: Readiness | None = None,
    drain_beside: Sequence[Callable[[], Awaitable[None]]] = (),
) -> None:
    """Serves until SIGTERM, SIGINT or `failure`, then drains; prints `READY <service> <host:port>` once it is ready.

    Health follows `readiness`; without one the service is ready at once and stays so.

    Draining: health says NOT_SERVING, new calls get UNAVAILABLE, and for a bounded time calls in flight go on. A
    service whose calls are streams that never end by themselves says by its part's `drain` when its work is done; they
    are cut off then; `drain_beside` ends what else the process serves at the same time. A second signal ends at once.
    An exception set on `failure` (an engine that died) is the cause of a RuntimeError at the end.
    """
    checks, calls = health.aio.HealthServicer(), Calls(part.service_names)
    server = _make_server(config, part, calls, checks)
    address = _bind(server, config)
    signals = _Signals()
    await server.start()
    announcing = asyncio.create_task(
        _announce(checks, ("", *part.service_names), readiness or Readiness(ready=True), f"READY {name} {address}")
    )
    try:
        await _first_of(signals.first.wait(), failure)
        await checks.enter_graceful_shutdown()
        calls.refuse()
        drains = (part.drain or calls.finished, *drain_beside)
        await _first_of(_drained(server, calls, drains, config.drain_seconds), signals.second.wait())
    finally:
        announcing.cancel()
        await server.stop(None)
    if failure is not None and failure.done():
        raise RuntimeError(f"{name} stopped: {failure.exception()}") from failure.exception()


async def _announce(
    checks: health.aio.HealthServicer, names: Sequence[str], readiness: Readiness, greeting: str
) -> None:
    """Health for as long as the server lives, and `greeting` on stdout when it is ready for the first time."""
    greeted = False
    async for ready in readiness.changes():
        status = health_pb2.HealthCheckResponse.SERVING if ready else health_pb2.HealthCheckResponse.NOT_SERVING
        for name in names:
            await checks.set(name, status)
        if ready and not greeted:
            greeted = True
            print(greeting, flush=True)


class MethodSymbolPool:
    """A descriptor pool for reflection that also finds the file of a *method*, which protobuf's own does not.

    ghz and grpcurl ask for `slipstream.v1.Generation.Generate`.
    """

    def __init__(self, pool: Any = None) -> None:
        self._pool = pool or descriptor_pool.Default()

    def FindFileContainingSymbol(self, symbol: str) -> FileDescriptor:
        try:
            found = self._pool.FindFileContainingSymbol(symbol)
        except KeyError:
            found = self._pool.FindMethodByName(symbol).containing_service.file
        assert isinstance(found, FileDescriptor)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)


class _Signals:
    """SIGTERM and SIGINT as events of the running loop: the first asks to drain, the second to stop."""

    def __init__(self) -> None:
        self.first = asyncio.Event()
        self.second = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._received)

    def _received(self) -> None:
        (self.second if self.first.is_set() else self.first).set()


def _make_server(config: ServerConfig, part: Part, calls: Calls, checks: health.aio.HealthServicer) -> grpc.aio.Server:
    server = grpc.aio.server(
        interceptors=(calls, StatusInterceptor()),
        options=(
            ("grpc.so_reuseport", 0),  # or two servers would share a port without a word
            ("grpc.max_send_message_length", config.max_message_bytes),
            ("grpc.max_receive_message_length", config.max_message_bytes),
            ("grpc.max_concurrent_streams", config.max_concurrent_streams),
            ("grpc.keepalive_time_ms", 30_000),
            ("grpc.keepalive_timeout_ms", 10_000),
            ("grpc.http2.ping_timeout_ms", 10_000),  # see channel.py
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.min_ping_interval_without_data_ms", 5_000),  # our clients ping every 10 s
        ),
    )
    part.register(server)
    health_pb2_grpc.add_HealthServicer_to_server(checks, server)
    names = (*part.service_names, health.SERVICE_NAME, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server, MethodSymbolPool())
    return server


def _bind(server: grpc.aio.Server, config: ServerConfig) -> str:
    listen, tls = config.listen, config.tls
    host, colon, port = listen.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > MAX_PORT:
        raise ValueError(f"listen is {listen!r}; it must be host:port, such as 127.0.0.1:0")
    try:
        bound = server.add_secure_port(listen, tls.credentials()) if tls else server.add_insecure_port(listen)
    except RuntimeError as error:
        raise OSError(f"cannot listen on {listen}; is another process using the port?") from error
    return f"{host}:{bound}"


async def _drained(
    server: grpc.aio.Server, calls: Calls, drains: Sequence[Callable[[], Awaitable[None]]], seconds: float
) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(asyncio.gather(*(drain() for drain in drains)), seconds)
    calls.cut()
    with suppress(TimeoutError):
        await asyncio.wait_for(calls.finished(), _LAST_WRITE_SECONDS)
    await server.stop(_LAST_WRITE_SECONDS)  # who watches health never ends by itself


async def _first_of(*waits: Awaitable[Any] | None) -> None:
    """Returns when one of them ends, however it ends; the coroutines among the others are cancelled."""
    tasks = [asyncio.ensure_future(wait) for wait in waits if wait is not None]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task, wait in zip(tasks, [wait for wait in waits if wait is not None], strict=True):
        if task is not wait:
            task.cancel()
