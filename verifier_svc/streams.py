"""What is still to be sent to each gateway: a bounded queue per stream. Knows outputs; no network, no verifier."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterable

from slipstream.errors import Exhausted
from slipstream.request import FinishReason
from verifier_svc.messages import StreamOutput


class OutgoingStream:
    """One gateway's queue. Ends when the gateway has said its last and everything that it opened is over."""

    def __init__(self, number: int, max_queued: int) -> None:
        self.number = number
        self._max_queued = max_queued
        self._queue: asyncio.Queue[StreamOutput | None] = asyncio.Queue()  # None: the end
        self._open_ids: set[int] = set()
        self._num_unwritten = 0
        self._requests_ended = False
        self._overflowed = False

    @property
    def is_quiet(self) -> bool:
        """Nothing is open, and all that was said has been written."""
        return not self._open_ids and not self._num_unwritten

    def note_open(self, sequence_id: int) -> None:
        self._open_ids.add(sequence_id)

    def note_close(self, sequence_id: int) -> None:
        self._open_ids.discard(sequence_id)

    def end_requests(self) -> None:
        """The gateway will send nothing more; what it opened goes on."""
        self._requests_ended = True
        self._end_if_over()

    def put(self, output: StreamOutput) -> None:
        if self._overflowed:
            return
        if self._queue.qsize() >= self._max_queued:
            self._overflowed = True
            self._queue.put_nowait(None)
            return
        self._num_unwritten += 1
        self._queue.put_nowait(output)
        over = {commit.sequence_id for commit in output.commits.commits if commit.finish_reason != FinishReason.NONE}
        self._open_ids -= over | {failure.sequence_id for failure in output.failures}
        self._end_if_over()

    async def outputs(self) -> AsyncIterator[StreamOutput]:
        """Until the end; Exhausted at once if the gateway reads more slowly than we commit."""
        while (output := await self._queue.get()) is not None and not self._overflowed:
            yield output
            self._num_unwritten -= 1  # asked for the next, the reader has written this one
        if self._overflowed:
            raise Exhausted(f"{self._max_queued} messages of the stream wait to be read; read faster and open again")

    def _end_if_over(self) -> None:
        if self._requests_ended and not self._open_ids:
            self._queue.put_nowait(None)


class OutgoingStreams:
    """All gateways' queues, by stream number. Lives on the event loop."""

    def __init__(self, max_queued: int) -> None:
        self._max_queued = max_queued
        self._numbers = itertools.count(1)
        self._streams: dict[int, OutgoingStream] = {}

    @property
    def are_quiet(self) -> bool:
        return all(stream.is_quiet for stream in self._streams.values())

    def open(self) -> OutgoingStream:
        stream = OutgoingStream(next(self._numbers), self._max_queued)
        self._streams[stream.number] = stream
        return stream

    def close(self, stream: OutgoingStream) -> None:
        del self._streams[stream.number]

    def deliver(self, outputs: Iterable[StreamOutput]) -> None:
        for output in outputs:
            stream = self._streams.get(output.stream)
            if stream is not None:  # else it broke while the step ran
                stream.put(output)
