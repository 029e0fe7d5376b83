"""An HTTP application on the event loop of its caller."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest
from aiohttp import web

from gateway.http_server import HttpServer, http_served


def app_of(*, release: asyncio.Event | None = None) -> web.Application:
    async def handle(request: web.Request) -> web.Response:
        if release is not None:
            await release.wait()
        return web.Response(text="done")

    app = web.Application()
    app.add_routes([web.get("/", handle)])
    return app


async def test_it_says_where_it_serves_and_ends_with_the_block(capsys: pytest.CaptureFixture[str]) -> None:
    async with http_served("thing", "127.0.0.1:0", app_of()):
        word, name, address = capsys.readouterr().out.split()
        assert (word, name) == ("HTTP", "thing")
        async with aiohttp.ClientSession() as http, http.get(f"http://{address}/") as response:
            assert await response.text() == "done"
    async with aiohttp.ClientSession() as http:
        with pytest.raises(aiohttp.ClientConnectionError):
            await http.get(f"http://{address}/")


async def test_without_an_address_nothing_is_served(capsys: pytest.CaptureFixture[str]) -> None:
    async with http_served("thing", "", app_of()):
        assert capsys.readouterr().out == ""


async def test_a_request_in_flight_is_let_finish_and_new_ones_find_nobody() -> None:
    release = asyncio.Event()
    server = HttpServer("127.0.0.1:0", app_of(release=release))
    url = f"http://{await server.start()}/"
    async with aiohttp.ClientSession() as http:
        running = asyncio.ensure_future(http.get(url))
        await asyncio.sleep(0.1)
        draining = asyncio.ensure_future(server.drain())
        await asyncio.sleep(0.1)
        with pytest.raises(aiohttp.ClientConnectionError):
            await http.get(url)
        release.set()
        assert (await running).status == 200
        await asyncio.wait_for(draining, 5)


async def test_an_address_in_use_is_named() -> None:
    first = HttpServer("127.0.0.1:0", app_of())
    address = await first.start()
    second = HttpServer(address, app_of())
    with pytest.raises(OSError, match=f"cannot listen on {address}"):
        await second.start()
    await first.drain()
    await second.drain()


@pytest.mark.parametrize("beginning", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n"])
async def test_who_never_ends_a_request_is_let_go(beginning: bytes) -> None:
    server = HttpServer("127.0.0.1:0", app_of(), idle_seconds=0.2)
    host, _, port = (await server.start()).rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(beginning)
    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    await server.drain()


@pytest.mark.parametrize("line", [b"Authorization: Bearer secret\0", b"Authorization: Bearer secret" + b"x" * 9000])
async def test_what_is_no_http_is_logged_in_a_line_without_what_was_sent(
    line: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    server = HttpServer("127.0.0.1:0", app_of())
    host, _, port = (await server.start()).rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n" + line + b"\r\n\r\n")
    with caplog.at_level("INFO"):
        assert b" 400 Bad Request" in await asyncio.wait_for(reader.readline(), 10)
    writer.close()
    await server.drain()
    assert "it is no HTTP" in caplog.text
    assert "secret" not in caplog.text
    assert "Traceback" not in caplog.text
