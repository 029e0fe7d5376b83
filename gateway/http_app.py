"""The gateway's HTTP application: identity of requests, what errors become, health. Knows no endpoint of any API."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from aiohttp import web

from gateway.admission import usable_request_id
from gateway.gateway import Gateway
from gateway.http_errors import error_reply

_LOG = logging.getLogger(__name__)

MAX_BODY_BYTES: Final = 16 << 20  # the longest prompt, its escapes in JSON and what is around it
BODY_SECONDS: Final = 60.0
REQUEST_ID: Final = web.RequestKey("request_id", str)
REQUEST_ID_HEADER: Final = "X-Request-Id"

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def make_app(gateway: Gateway, routes: Iterable[web.AbstractRouteDef]) -> web.Application:
    app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_guarded])
    app.on_response_prepare.append(_add_request_id)
    app.add_routes([web.get("/health", _health(gateway)), *routes])
    return app


async def read_body(request: web.Request, seconds: float = BODY_SECONDS) -> bytes:
    """Who takes longer to send it holds a connection for nothing."""
    try:
        async with asyncio.timeout(seconds):
            return await request.read()
    except TimeoutError as error:
        raise web.HTTPRequestTimeout(text=f"the body did not come within {seconds:.0f} s") from error


@web.middleware
async def _guarded(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Every request has an identity, the caller's or ours, and every failure a body that a client can read."""
    request[REQUEST_ID] = usable_request_id("")
    try:
        request[REQUEST_ID] = usable_request_id(request.headers.get(REQUEST_ID_HEADER, ""))
        return await handler(request)
    except ConnectionError:
        raise  # the caller went
    except Exception as error:
        reply = error_reply(error)
        if reply.is_ours:
            _LOG.exception("%s %s failed", request.method, request.path)
        return reply.response()


async def _add_request_id(request: web.Request, response: web.StreamResponse) -> None:
    response.headers[REQUEST_ID_HEADER] = request[REQUEST_ID]


def _health(gateway: Gateway) -> _Handler:
    async def health(request: web.Request) -> web.StreamResponse:
        """Whether requests can be served at present; needs no key."""
        return web.json_response({"serving": gateway.is_serving}, status=200 if gateway.is_serving else 503)

    return health
