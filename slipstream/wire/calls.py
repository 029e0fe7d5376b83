"""The calls a server has in flight, and the end of new ones once it drains. Knows service names; no message.

grpc's own stop cancels a call that arrives while others are let finish; a caller must hear UNAVAILABLE instead, which
says that another server, or this one later, may do it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import grpc

from slipstream.wire.handlers import Behaviour, Handler, wrapped

REFUSAL = "the server is shutting down; ask another, or again when it is back"


class Calls(grpc.aio.ServerInterceptor):
    """Of the services named. Stands before interceptors that turn every method into a plain coroutine."""

    def __init__(self, service_names: Collection[str]) -> None:
        self._service_names = frozenset(service_names)
        self._running: set[asyncio.Task[Any]] = set()
        self._refusing = False
        self._cutting = False
        self._idle = asyncio.Event()
        self._idle.set()

    def refuse(self) -> None:
        """Takes no new call from now on."""
        self._refusing = True

    async def finished(self) -> None:
        """Returns when none is in flight; the status of the last may still have to be written."""
        await self._idle.wait()

    def cut(self) -> None:
        """Ends those in flight as new ones are refused; what grpc ends looks as if its caller had cancelled it."""
        self._cutting = True
        for task in self._running:
            task.cancel()

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        handler = await continuation(handler_call_details)
        if handler is None or handler_call_details.method.split("/")[1] not in self._service_names:
            return handler
        return wrapped(handler, self._counted)

    def _counted(self, behaviour: Behaviour) -> Behaviour:
        async def call(request: Any, context: grpc.aio.ServicerContext[Any, Any]) -> Any:
            if self._refusing:
                await context.abort(grpc.StatusCode.UNAVAILABLE, REFUSAL)
            task = asyncio.current_task()
            assert task is not None
            self._running.add(task)
            self._idle.clear()
            try:
                return await behaviour(request, context)
            except asyncio.CancelledError:
                if self._cutting and not context.cancelled():
                    await context.abort(grpc.StatusCode.UNAVAILABLE, REFUSAL)
                raise
            finally:
                self._running.discard(task)
                if not self._running:
                    self._idle.set()

        return call
