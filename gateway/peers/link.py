"""One peer: its stream, reconnection, and dispatch by sequence. What is said on the stream is its dialect's affair."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, Generic, NoReturn

import grpc
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc

from gateway.peers.dialect import Dialect, ItemT, ReceiverT
from gateway.peers.load import PeerLoad
from slipstream.errors import CheckpointError, InvalidRequest, Unavailable
from slipstream.exchange import ModelInfo
from slipstream.request import SequenceRequest
from slipstream.wire.channel import open_channel
from slipstream.wire.status import from_rpc_error

_LOG = logging.getLogger(__name__)

RETRY_SECONDS = 0.25
CONNECT_SECONDS = 10.0  # for what is asked before the stream starts
REFRESH_SECONDS = 1.0
MAX_UNSENT = 100_000  # items; a peer that does not read is treated as gone


class Link(Generic[ReceiverT, ItemT]):
    """Nothing here waits for the peer but `run`: what is sent in one tick of the loop leaves in one go."""

    def __init__(
        self,
        address: str,
        dialect: Dialect[ReceiverT, ItemT],
        on_change: Callable[[Link[ReceiverT, ItemT]], None],
        connect: Callable[[str], grpc.aio.Channel] = open_channel,
        note_malformed: Callable[[str], None] = lambda peer: None,  # called with the kind of peer
    ) -> None:
        self.address = address
        self.info: ModelInfo | None = None  # as last received; kept while the peer is away
        self.load = PeerLoad()
        self.is_leaving = False  # no more sequences are to be opened here, whatever the peer says
        self._dialect = dialect
        self._on_change = on_change
        self._connect_to = connect
        self._note_malformed = note_malformed
        self._channel: grpc.aio.Channel | None = None
        self._serving = asyncio.Event()  # the peer's health
        self._connected = False
        self._receivers: dict[int, ReceiverT] = {}
        self._closes: dict[int, None] = {}  # ordered
        self._opens: dict[int, SequenceRequest] = {}
        self._items: list[tuple[int, ItemT]] = []
        self._wake = asyncio.Event()
        self._overfull = asyncio.Event()  # more than MAX_UNSENT items wait
        self._last_trouble = ""

    @property
    def available(self) -> bool:
        """May sequences be opened here?"""
        return self._connected and self._serving.is_set() and not self.is_leaving

    @property
    def num_sequences(self) -> int:
        return len(self._receivers)

    @property
    def cost(self) -> tuple[bool, float]:
        """Of one more sequence here; the smaller the better."""
        return self.load.cost(self.num_sequences)

    def open(self, request: SequenceRequest, receiver: ReceiverT) -> None:
        assert self._connected, "pick an available link"
        self._receivers[request.sequence_id] = receiver
        self._opens[request.sequence_id] = request
        self._wake.set()

    def send(self, sequence_id: int, item: ItemT) -> None:
        if sequence_id in self._receivers:  # else the peer has ended it, and waits for nothing
            self._items.append((sequence_id, item))
            self._wake.set()
            if len(self._items) > MAX_UNSENT:
                self._overfull.set()

    def close(self, sequence_id: int) -> None:
        """Ends the sequence at the peer. What was not sent yet is not sent any more."""
        if self._receivers.pop(sequence_id, None) is None:
            return
        self._items = [item for item in self._items if item[0] != sequence_id]
        self._opens.pop(sequence_id, None)
        self._closes[sequence_id] = None
        self._wake.set()

    def release(self, sequence_id: int) -> None:
        """The peer has ended the sequence by itself."""
        self._receivers.pop(sequence_id, None)

    async def refresh(self) -> None:
        """Asks the peer for its load, if it is there."""
        if self._channel is not None and self.available:
            with suppress(grpc.aio.AioRpcError, TimeoutError, CheckpointError):
                async with asyncio.timeout(REFRESH_SECONDS):
                    await self._describe(self._channel)

    async def run(self) -> NoReturn:
        """Connects, serves and connects again, until cancelled."""
        while True:
            try:
                async with self._connect_to(
                    self.address
                ) as channel:  # a new one each time: it has no backoff to sit out
                    self._channel = channel
                    await _until_one_ends(self._watch_health(channel), self._exchange(channel))
            except (grpc.aio.AioRpcError, TimeoutError, Unavailable, InvalidRequest, CheckpointError) as error:
                self._report(error)
            except Exception as error:  # a fault of ours with one peer must not take the others along
                _LOG.debug("%s %s", self._dialect.name, self.address, exc_info=error)
                self._report(error)
            finally:
                self._lose_connection()
            await asyncio.sleep(RETRY_SECONDS)

    async def _watch_health(self, channel: grpc.aio.Channel) -> None:
        watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        async for response in watch:
            if response.status == health_pb2.HealthCheckResponse.SERVING:
                self._serving.set()
            else:
                self._serving.clear()
            self._on_change(self)
        raise Unavailable(f"{self.address} stopped reporting its health")

    async def _exchange(self, channel: grpc.aio.Channel) -> None:
        await self._serving.wait()
        async with asyncio.timeout(CONNECT_SECONDS):
            await self._describe(channel)
        call = self._dialect.start(channel)
        try:
            await call.wait_for_connection()
            self._connect()
            await _until_one_ends(self._read(call), self._write(call), self._watch_backlog())
        finally:
            call.cancel()

    async def _describe(self, channel: grpc.aio.Channel) -> None:
        self.info = await self._dialect.describe(channel)
        self.load.note_model(self.info, self.num_sequences)

    def _connect(self) -> None:
        self._connected = True
        self._last_trouble = ""
        _LOG.info("%s %s is connected: %s", self._dialect.name, self.address, self.info.name if self.info else "")
        self._on_change(self)

    async def _read(self, call: Any) -> None:
        async for message in call:
            self._dispatch(message)
        raise Unavailable(f"{self.address} ended the stream")

    def _dispatch(self, message: Any) -> None:
        try:
            step = self._dialect.dispatch(message, self._receivers)
        except InvalidRequest as error:
            self._note_malformed(self._dialect.name)
            raise Unavailable(f"{self.address} sent a malformed message: {error}") from error
        if step is not None:
            self.load.note_step(step, self.num_sequences)

    async def _write(self, call: Any) -> None:
        with suppress(asyncio.InvalidStateError):  # the call has ended; the reader knows why
            while True:
                await self._wake.wait()
                self._wake.clear()
                for message in self._take():
                    await call.write(message)

    async def _watch_backlog(self) -> None:
        """Beside the writer, which hangs in its write while the peer does not read."""
        await self._overfull.wait()
        raise Unavailable(f"{self.address} does not read: {len(self._items)} items wait")

    def _take(self) -> Iterable[Message]:
        closes, opens, items = self._closes, self._opens, self._items
        self._closes, self._opens, self._items = {}, {}, []
        return self._dialect.messages(closes, opens.values(), (item for _, item in items))

    def _lose_connection(self) -> None:
        was_connected, self._connected = self._connected, False
        self._channel = None
        self._serving.clear()
        self._overfull.clear()
        receivers, self._receivers = self._receivers, {}
        self._closes, self._opens, self._items = {}, {}, []
        if was_connected:
            self._on_change(self)
        for receiver in receivers.values():
            receiver.on_down()

    def _report(self, error: Exception) -> None:
        """One line per trouble, not one per attempt."""
        if isinstance(error, grpc.aio.AioRpcError):
            error = from_rpc_error(error)
        text = str(error) or type(error).__name__
        if text != self._last_trouble:
            self._last_trouble = text
            _LOG.warning("%s %s is not reachable: %s", self._dialect.name, self.address, text)


async def _until_one_ends(*coroutines: Coroutine[Any, Any, None]) -> None:
    """Runs them side by side until the first ends or fails, or until cancelled; the others are cancelled.

    A task group that is cancelled while one of its tasks fails raises the failure and forgets the cancellation.
    """
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
