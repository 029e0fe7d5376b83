"""Peers of one kind: who is there, who has most room, who just came back. Knows links; knows no request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Generic, NoReturn

from gateway.link import Dialect, ItemT, Link, ReceiverT
from slipstream.exchange import ModelInfo


class Pool(Generic[ReceiverT, ItemT]):
    """Runs one link per address. `on_change` is called whenever one comes or goes."""

    def __init__(
        self,
        addresses: Sequence[str],
        make_dialect: Callable[[str], Dialect[ReceiverT, ItemT]],
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_change = on_change
        self._arrivals: dict[Callable[[], None], None] = {}  # ordered; called when a link becomes available
        self._was_available: set[str] = set()
        self.links = [Link(address, make_dialect(address), self._changed) for address in addresses]

    async def run(self) -> NoReturn:
        async with asyncio.TaskGroup() as tasks:
            for link in self.links:
                tasks.create_task(link.run())
            await asyncio.Event().wait()
        raise AssertionError("links run until cancelled")

    @property
    def available(self) -> list[Link[ReceiverT, ItemT]]:
        return [link for link in self.links if link.available]

    def pick(self, serves: Callable[[ModelInfo], bool], besides: Collection[str] = ()) -> Link[ReceiverT, ItemT] | None:
        """The least loaded of those available that serve what is wanted, addresses in `besides` left out."""
        candidates = [link for link in self.available if link.address not in besides]
        fitting = [link for link in candidates if link.info is not None and serves(link.info)]
        return min(fitting, key=lambda link: link.num_sequences, default=None)

    def subscribe(self, on_arrival: Callable[[], None]) -> None:
        """Have `on_arrival` called each time a link becomes available, until unsubscribed."""
        self._arrivals[on_arrival] = None

    def unsubscribe(self, on_arrival: Callable[[], None]) -> None:
        self._arrivals.pop(on_arrival, None)

    def _changed(self, link: Link[ReceiverT, ItemT]) -> None:
        arrived = link.available and link.address not in self._was_available
        (self._was_available.add if link.available else self._was_available.discard)(link.address)
        self._on_change()
        if arrived:
            for on_arrival in list(self._arrivals):
                on_arrival()
