"""A headless Chromium, driven through its DevTools protocol. Knows the protocol; no page of ours."""

from __future__ import annotations

import asyncio
import base64
import itertools
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # tests may run as root, as in a container
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
    "--window-size=1100,900",
)
START_SECONDS = 60.0
ANSWER_SECONDS = 30.0


class Tab:
    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._session = ""

    async def open(self, address: str) -> None:
        self._session = ""  # the browser's own
        target = await self.ask("Target.createTarget", url="about:blank")
        attached = await self.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        await self.ask("Page.navigate", url=address)

    async def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        message = {"id": next(self._numbers), "method": method, "params": parameters}
        await self._socket.send_json(message | ({"sessionId": self._session} if self._session else {}))
        async with asyncio.timeout(ANSWER_SECONDS):
            while (answer := await self._socket.receive_json()).get("id") != message["id"]:
                pass
        assert "error" not in answer, answer
        return dict(answer["result"])

    async def value(self, script: str) -> Any:
        answer = await self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def until(self, script: str, seconds: float = 30.0) -> Any:
        """The value once it is true."""
        async with asyncio.timeout(seconds):
            while not (value := await self.value(script)):
                await asyncio.sleep(0.05)
        return value

    async def picture(self) -> bytes:
        answer = await self.ask("Page.captureScreenshot", format="png")
        return base64.b64decode(answer["data"])


@asynccontextmanager
async def chromium_tab(folder: Path) -> AsyncIterator[Tab]:
    assert CHROMIUM is not None
    process = await asyncio.create_subprocess_exec(
        CHROMIUM,
        *OPTIONS,
        f"--user-data-dir={folder}",
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with aiohttp.ClientSession() as http, http.ws_connect(await _address(process)) as socket:
            tab = Tab(socket)
            yield tab
            await tab.ask("Browser.close")
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _address(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    said = ""
    async with asyncio.timeout(START_SECONDS):
        while line := (await process.stderr.readline()).decode():
            said += line
            if line.startswith("DevTools listening on "):
                return line.split()[-1]
    raise AssertionError(f"chromium did not start: {said}")
