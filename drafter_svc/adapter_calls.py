"""Orders about adapters from callers to the drafter's thread, and its answers back. Knows no gRPC and no tensors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from drafter_svc.adapter_folder import AdapterFolder
from drafter_svc.adapters import AdapterAnswer, AdapterOrder, ListAdapters, LoadAdapter, UnloadAdapter
from slipstream.engine.engine_thread import apart
from slipstream.exchange import AdapterList


@dataclass(slots=True)
class AdapterCalls:
    """Files are read beside the drafter's thread, which then only copies what was read."""

    post: Callable[[int, AdapterOrder], None]  # with the number of the call, which comes back with the answer
    folder: AdapterFolder
    numbers: Iterator[int]
    _waiting: dict[int, asyncio.Future[AdapterList]] = field(default_factory=dict)

    async def load(self, name: str, path: str) -> AdapterList:
        weights = await asyncio.to_thread(apart, lambda: self.folder.load_allowed(path), "cpu")
        return await self._ask(LoadAdapter(name, path, weights))

    async def unload(self, name: str) -> AdapterList:
        return await self._ask(UnloadAdapter(name))

    async def listed(self) -> AdapterList:
        return await self._ask(ListAdapters())

    def deliver(self, number: int, answer: AdapterAnswer) -> None:
        future = self._waiting.get(number)
        if future is None or future.done():  # its caller has gone
            return
        if isinstance(answer.outcome, Exception):
            future.set_exception(answer.outcome)
        else:
            future.set_result(answer.outcome)

    async def _ask(self, order: AdapterOrder) -> AdapterList:
        number = next(self.numbers)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            self.post(number, order)
            return await self._waiting[number]
        finally:
            del self._waiting[number]
