"""What is common to all HTTP requests: identity, errors, health, the longest body."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web

from gateway.http_app import MAX_BODY_BYTES, REQUEST_ID, make_app, read_body
from gateway.http_server import HttpServer
from slipstream.errors import Exhausted
from tests.gateway.fakes import FakeVerifier, running_gateway


async def echo(request: web.Request) -> web.Response:
    await request.read()
    return web.Response(text=request[REQUEST_ID])


async def impatient(request: web.Request) -> web.Response:
    return web.Response(body=await read_body(request, 0.1))


async def full(request: web.Request) -> web.Response:
    raise Exhausted("no room", retry_after_seconds=3)


async def broken(request: web.Request) -> web.Response:
    raise KeyError("secret")


@asynccontextmanager
async def serving(verifier: FakeVerifier) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    async with running_gateway([verifier]) as gateway:
        routes = [
            web.post("/echo", echo),
            web.post("/impatient", impatient),
            web.get("/full", full),
            web.get("/broken", broken),
        ]
        server = HttpServer("127.0.0.1:0", make_app(gateway, routes))
        url = f"http://{await server.start()}"
        async with aiohttp.ClientSession() as http:
            yield http, url
        await server.drain()


@pytest.fixture
def verifier() -> FakeVerifier:
    return FakeVerifier([])


@pytest.mark.parametrize(("given", "expected"), [({}, r"[0-9a-f]{32}"), ({"X-Request-Id": "mine"}, "mine")])
async def test_a_request_has_the_callers_identity_or_ours(
    verifier: FakeVerifier, given: dict[str, str], expected: str
) -> None:
    async with serving(verifier) as (http, url), http.post(f"{url}/echo", headers=given) as response:
        assert re.fullmatch(expected, response.headers["X-Request-Id"])
        assert await response.text() == response.headers["X-Request-Id"]


async def test_an_identity_that_cannot_be_logged_is_refused(verifier: FakeVerifier) -> None:
    headers = {"X-Request-Id": "x" * 200}
    async with serving(verifier) as (http, url), http.post(f"{url}/echo", headers=headers) as response:
        assert response.status == 400
        assert "request_id is" in (await response.json())["error"]["message"]
        assert re.fullmatch(r"[0-9a-f]{32}", response.headers["X-Request-Id"])


@pytest.mark.parametrize(
    ("method", "path", "status", "text"),
    [
        ("GET", "/nowhere", 404, "there is no such path here"),
        ("GET", "/echo", 405, "Method Not Allowed"),
        ("GET", "/full", 429, "no room"),
        ("GET", "/broken", 500, r"internal error \(KeyError\)"),
    ],
)
async def test_every_failure_is_json(verifier: FakeVerifier, method: str, path: str, status: int, text: str) -> None:
    async with serving(verifier) as (http, url), http.request(method, url + path) as response:
        assert response.status == status
        assert re.search(text, (await response.json())["error"]["message"])
        assert response.headers["X-Request-Id"]


async def test_a_fault_of_ours_is_logged_and_only_that(
    verifier: FakeVerifier, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(verifier) as (http, url):
        with caplog.at_level(logging.ERROR, "gateway.http_app"):
            await http.get(f"{url}/full")
            await http.get(f"{url}/broken")
    assert [record.getMessage() for record in caplog.records] == ["GET /broken failed"]


async def test_a_body_beyond_the_limit_is_refused(verifier: FakeVerifier) -> None:
    async with serving(verifier) as (http, url):
        async with http.post(f"{url}/echo", data=b"x" * (MAX_BODY_BYTES + 1)) as response:
            assert response.status == 413
            assert "error" in await response.json()
        async with http.post(f"{url}/echo", data=b"x") as response:
            assert response.status == 200


async def test_health_follows_the_verifiers(verifier: FakeVerifier) -> None:
    async with serving(verifier) as (http, url):
        async with http.get(f"{url}/health") as response:
            assert (response.status, await response.json()) == (200, {"serving": True})
        await verifier.die()
        while (await http.get(f"{url}/health")).status == 200:
            pass


async def test_a_body_that_does_not_come_is_not_waited_for(verifier: FakeVerifier) -> None:
    async def slowly() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(30)

    async with serving(verifier) as (http, url), http.post(f"{url}/impatient", data=slowly()) as response:
        assert response.status == 408
        assert "did not come" in (await response.json())["error"]["message"]
