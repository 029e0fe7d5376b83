"""Many requests on one bidirectional stream, their responses as they come. Knows messages; knows no tensor."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any

from tritonclient.grpc import service_pb2

from slipstream.errors import Unavailable
from slipstream.wire.calls import REFUSAL
from slipstream.wire.status import to_status

Answer = Callable[[Any], AsyncGenerator[Any, None]]  # ModelInferRequest to its ModelInferResponses


class InferStream:
    """A request that fails gets an error and costs the others nothing; leaving ends them all.

    Once `closing` is set, the stream ends with the last answer, though its caller may still have something to ask.
    """

    def __init__(self, answer: Answer, closing: asyncio.Event) -> None:
        self._answer = answer
        self._closing = closing
        # No room to wait in: who reads slowly is the gateway's matter.
        self._queue: asyncio.Queue[Any] = asyncio.Queue(1)
        self._running: set[asyncio.Task[None]] = set()

    async def responses(self, requests: AsyncIterator[Any]) -> AsyncGenerator[Any, None]:
        reading, closing = asyncio.create_task(self._read(requests)), asyncio.create_task(self._closing.wait())
        ending = asyncio.create_task(self._end_after(reading, closing))
        try:
            while (item := await self._queue.get()) is not None:
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            tasks = [reading, closing, ending, *self._running]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, requests: AsyncIterator[Any]) -> None:
        """Ends when the caller has no more to ask."""
        try:
            async for request in requests:
                if self._closing.is_set():
                    await self._queue.put(_failed(request, Unavailable(REFUSAL)))
                    continue
                task = asyncio.create_task(self._run(request))
                self._running.add(task)
                task.add_done_callback(self._running.discard)
        except Exception as error:
            await self._queue.put(error)

    async def _end_after(self, *tasks: asyncio.Task[Any]) -> None:
        """Ends the responses when one of these has ended and every request has its answers."""
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if self._running:
            await asyncio.wait(self._running)
        await self._queue.put(None)

    async def _run(self, request: Any) -> None:
        try:
            async with aclosing(self._answer(request)) as responses:
                async for response in responses:
                    await self._queue.put(service_pb2.ModelStreamInferResponse(infer_response=response))
        except Exception as error:
            await self._queue.put(_failed(request, error))


def _failed(request: Any, error: Exception) -> Any:
    """The caller knows by id whose failure it is."""
    return service_pb2.ModelStreamInferResponse(
        error_message=to_status(error)[1],
        infer_response=service_pb2.ModelInferResponse(model_name=request.model_name, id=request.id),
    )
