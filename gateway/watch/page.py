"""The page that shows running requests, and the stream of events behind it. Knows HTTP; makes no event."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from importlib.resources import files
from typing import Final

from aiohttp import web

from gateway.watch.feed import Event, Feed, Viewer
from gateway.watch.key import require_key

WRITE_SECONDS: Final = 0.05  # between two writes to one viewer: events that come closer together share a write
QUIET_SECONDS: Final = 10.0  # without an event, until something is written that finds out whether the viewer is there
PATIENCE_SECONDS: Final = 5.0  # with a viewer whose connection takes nothing

_NOTHING: Final = b": nothing new\n\n"  # a comment

_PARTS: Final = {
    "/": ("page.html", "text/html"),
    "/watch/page.js": ("page.js", "text/javascript"),
    "/watch/page.css": ("page.css", "text/css"),
}
# Texts are other people's: whatever they hold, nothing runs but our own script, and nothing is fetched from elsewhere.
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class WatchPage:
    """The page itself says nothing of any request and needs no key; the events do."""

    def __init__(self, feed: Feed, key_sha256: str) -> None:
        self._feed = feed
        self._key_sha256 = key_sha256

    def routes(self) -> list[web.RouteDef]:
        """None without a key: then nothing is shown to anyone."""
        if not self._key_sha256:
            return []
        return [*(web.get(path, self._part) for path in _PARTS), web.get("/watch/events", self._events)]

    async def end(self, app: web.Application) -> None:
        """Before the server waits for requests in flight, for these would never end."""
        self._feed.end()

    async def _part(self, request: web.Request) -> web.StreamResponse:
        name, content_type = _PARTS[request.path]
        text = files(__package__).joinpath(name).read_text(encoding="utf-8")
        return web.Response(text=text, content_type=content_type, headers=_HEADERS)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        require_key(request.headers.get("Authorization", ""), self._key_sha256)
        with self._feed.viewing() as viewer:
            response = web.StreamResponse(headers=_HEADERS | {"Content-Type": "text/event-stream; charset=utf-8"})
            await response.prepare(request)
            try:
                await _send_events(response, viewer)
            except TimeoutError:
                if request.transport is not None:
                    request.transport.abort()  # the end of the response could not be written
        return response


def event_text(batch: Iterable[Event]) -> bytes:
    """One server-sent event that holds a list."""
    return f"data: {json.dumps(list(batch), separators=(',', ':'))}\n\n".encode()


async def _send_events(response: web.StreamResponse, viewer: Viewer) -> None:
    """Raises TimeoutError if the viewer does not read."""
    await _write(response, _NOTHING)  # the headers leave with it
    async for batch in viewer.batches(QUIET_SECONDS):
        await _write(response, event_text(batch) if batch else _NOTHING)
        await asyncio.sleep(WRITE_SECONDS)
    if viewer.is_dropped:
        await _write(response, event_text([{"kind": "dropped"}]))


async def _write(response: web.StreamResponse, data: bytes) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        await response.write(data)
