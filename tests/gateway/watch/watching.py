"""A gateway whose page can be watched, on real HTTP, with peers that say what a test tells them to."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from gateway.gateway import Gateway
from gateway.http_app import make_app
from gateway.http_server import HttpServer
from gateway.watch.page import WatchPage
from tests.gateway.fakes import FakeDrafter, FakeVerifier, running_gateway

KEY = "open sesame"
KEY_SHA256 = hashlib.sha256(KEY.encode()).hexdigest()


@asynccontextmanager
async def watched_gateway(
    verifier: FakeVerifier, drafters: tuple[FakeDrafter, ...] = (), key_sha256: str = KEY_SHA256, **settings: Any
) -> AsyncIterator[tuple[Gateway, str]]:
    """The gateway, and where its page is."""
    async with running_gateway([verifier], drafters, **settings) as gateway:
        page = WatchPage(gateway.feed, key_sha256)
        app = make_app(gateway, page.routes())
        app.on_shutdown.append(page.end)
        server = HttpServer("127.0.0.1:0", app)
        try:
            yield gateway, f"http://{await server.start()}"
        finally:
            await server.drain()


class Viewing:
    """The events that one viewer gets."""

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content
        self._waiting: deque[dict[str, Any]] = deque()

    async def next(self, kind: str) -> dict[str, Any]:
        """The next one of its kind; those before it are passed over."""
        async with asyncio.timeout(10):
            while True:
                while self._waiting:
                    if (event := self._waiting.popleft())["kind"] == kind:
                        return event
                line = await self._content.readline()
                assert line, f"no {kind!r} came"
                if line.startswith(b"data: "):
                    self._waiting += json.loads(line.removeprefix(b"data: "))


@asynccontextmanager
async def viewing(url: str, key: str = KEY) -> AsyncIterator[Viewing]:
    headers = {"Authorization": f"Bearer {key}"}
    async with aiohttp.ClientSession() as http, http.get(f"{url}/watch/events", headers=headers) as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        yield Viewing(answer.content)
