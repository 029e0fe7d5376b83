"""Serves an HTTP application on the event loop of its caller. Knows addresses, TLS and how to end; no endpoint."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from slipstream.wire.tls import ServerTls

DRAIN_SECONDS: Final = 10.0  # for requests in flight, as long as gRPC calls have
IDLE_SECONDS: Final = 75.0  # of a connection without a request, or with one whose headers do not come to their end


class _Log(logging.LoggerAdapter[logging.Logger]):
    """What is no HTTP is a caller's mistake: a line without what was sent, for there may be a key in it."""

    def exception(self, msg: object, *args: object, exc_info: Any = True, **more: Any) -> None:
        if isinstance(exc_info, HttpProcessingError):
            self.info(f"{msg}: it is no HTTP (%s)", *args, type(exc_info).__name__)
        else:
            super().exception(msg, *args, exc_info=exc_info, **more)


class HttpServer:
    """Of one application; does nothing if `listen` is empty."""

    def __init__(
        self, listen: str, app: web.Application, tls: ServerTls | None = None, idle_seconds: float = IDLE_SECONDS
    ) -> None:
        self._listen = listen
        self._ssl = None if tls is None else tls.context()
        # Who goes away cancels what it asked for.
        self._runner = web.AppRunner(
            app,
            handle_signals=False,
            handler_cancellation=True,
            access_log=None,
            logger=_Log(logging.getLogger(__name__)),
            keepalive_timeout=idle_seconds,
            shutdown_timeout=DRAIN_SECONDS,
        )

    async def start(self) -> str:
        """Its address, with the port that it got."""
        host, _, port = self._listen.rpartition(":")
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host.strip("[]"), int(port), ssl_context=self._ssl).start()
        except OSError as error:
            raise OSError(
                f"cannot listen on {self._listen}: {error.strerror}; give a free port of this machine"
            ) from error
        return f"{host}:{self._runner.addresses[0][1]}"

    async def drain(self) -> None:
        """Takes no new request, lets those in flight end within their time, then cuts them off."""
        await self._runner.cleanup()


@asynccontextmanager
async def http_served(
    service: str, listen: str, app: web.Application, tls: ServerTls | None = None
) -> AsyncIterator[HttpServer]:
    """Serves at `listen` for as long as the block lasts and says where on stdout; not at all if `listen` is empty."""
    server = HttpServer(listen, app, tls)
    if listen:
        print(f"HTTP {service} {await server.start()}", flush=True)
    try:
        yield server
    finally:
        await server.drain()
