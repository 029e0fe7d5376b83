"""Peers of one kind: who is there, who has most room, who just came back. Knows links; knows no request."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final, Generic, NoReturn

from gateway.peers.addresses import AddressBook, Endpoint
from gateway.peers.dialect import Dialect, ItemT, ReceiverT
from gateway.peers.link import Link
from slipstream.exchange import ModelInfo
from slipstream.wire.channel import open_channel
from slipstream.wire.tls import ClientTls

LOOK_SECONDS: Final = 2.0  # between looks at names in DNS, and at how full the peers are


class Pool(Generic[ReceiverT, ItemT]):
    """Runs one link per peer. `on_change` is called whenever one comes or goes."""

    def __init__(
        self,
        peers: Sequence[str] | AddressBook,  # a sequence holds host:port, or dns:///name:port
        make_dialect: Callable[[str], Dialect[ReceiverT, ItemT]],
        on_change: Callable[[], None] = lambda: None,
        *,
        tls: ClientTls | None = None,
        note_malformed: Callable[[str], None] = lambda peer: None,
    ) -> None:
        self._book = peers if isinstance(peers, AddressBook) else AddressBook(peers)
        self._make_dialect = make_dialect
        self._on_change = on_change
        self._tls = tls
        self._note_malformed = note_malformed
        self._arrivals: dict[Callable[[], None], None] = {}  # ordered; called when a link becomes available
        self._was_available: set[str] = set()
        self._random = random.Random()
        self._links: dict[Endpoint, Link[ReceiverT, ItemT]] = {}
        self._running: dict[Endpoint, asyncio.Task[NoReturn]] = {}
        self._make_links()

    async def run(self) -> NoReturn:
        async with asyncio.TaskGroup() as tasks:
            self._start_links(tasks)
            while True:
                await self._book.refresh()
                self._make_links()
                self._start_links(tasks)
                self._let_go()
                await asyncio.sleep(LOOK_SECONDS)
                # Whatever a peer answers, or a channel that closes meanwhile does to its calls, ends nobody's link.
                await asyncio.gather(*(link.refresh() for link in self.available), return_exceptions=True)

    @property
    def links(self) -> list[Link[ReceiverT, ItemT]]:
        return list(self._links.values())

    @property
    def offered(self) -> set[str]:
        """Proposers of all peers that were ever reached, those that are away for now included."""
        return {name for link in self.links if link.info is not None for name in link.info.proposers}

    @property
    def available(self) -> list[Link[ReceiverT, ItemT]]:
        return [link for link in self.links if link.available]

    def pick(self, serves: Callable[[ModelInfo], bool], besides: Collection[str] = ()) -> Link[ReceiverT, ItemT] | None:
        """The least loaded of those available that serve what is wanted, addresses in `besides` left out.

        Of equals any: several gateways that see the same must not all take the first. With reports as fresh as ours the
        best of all beats the better of any two, also with many gateways (bench/picking.py).
        """
        candidates = [link for link in self.available if link.address not in besides]
        fitting = [link for link in candidates if link.info is not None and serves(link.info)]
        return min(fitting, key=lambda link: (link.cost, self._random.random()), default=None)

    def subscribe(self, on_arrival: Callable[[], None]) -> None:
        """Have `on_arrival` called each time a link becomes available, until unsubscribed."""
        self._arrivals[on_arrival] = None

    def unsubscribe(self, on_arrival: Callable[[], None]) -> None:
        self._arrivals.pop(on_arrival, None)

    def _make_links(self) -> None:
        """One for each endpoint there is now; who is no longer listed gets no new sequences."""
        present = self._book.endpoints
        for endpoint in present:
            if endpoint not in self._links:
                connect = partial(open_channel, tls=self._tls, server_name=endpoint.server_name)
                dialect = self._make_dialect(endpoint.address)
                self._links[endpoint] = Link(endpoint.address, dialect, self._changed, connect, self._note_malformed)
        for endpoint, link in self._links.items():
            if link.is_leaving != (endpoint not in present):
                link.is_leaving = not link.is_leaving
                self._changed(link)

    def _start_links(self, tasks: asyncio.TaskGroup) -> None:
        for endpoint, link in self._links.items():
            if endpoint not in self._running:
                self._running[endpoint] = tasks.create_task(link.run())

    def _let_go(self) -> None:
        """Of links that leave and carry nothing any more."""
        for endpoint, link in list(self._links.items()):
            if link.is_leaving and not link.num_sequences:
                del self._links[endpoint]
                self._running.pop(endpoint).cancel()

    def _changed(self, link: Link[ReceiverT, ItemT]) -> None:
        arrived = link.available and link.address not in self._was_available
        (self._was_available.add if link.available else self._was_available.discard)(link.address)
        if arrived:
            link.load.note_arrival()
        self._on_change()
        if arrived:
            for on_arrival in list(self._arrivals):
                on_arrival()
