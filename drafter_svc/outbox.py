"""What waits to be written on one stream. Knows drafts may be dropped and errors may not; knows no gRPC."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from slipstream.exchange import DraftBatch, SequenceFailure

MAX_BATCHES: Final = 256


class Outbox:
    """A queue for one reader that never makes the writer wait: beyond its limit the oldest drafts go: stale."""

    def __init__(self, max_batches: int = MAX_BATCHES) -> None:
        self._failures: deque[SequenceFailure] = deque()
        self._batches: deque[DraftBatch] = deque(maxlen=max_batches)
        self._filled = asyncio.Event()
        self._closed = False

    def put(self, message: DraftBatch | SequenceFailure) -> bool:
        """False if it drove out an older one."""
        full = len(self._batches) == self._batches.maxlen
        if isinstance(message, SequenceFailure):
            self._failures.append(message)
        else:
            self._batches.append(message)
        self._filled.set()
        return not full or isinstance(message, SequenceFailure)

    def close(self) -> None:
        """Nothing more will come; what is there is still read."""
        self._closed = True
        self._filled.set()

    async def get(self) -> DraftBatch | SequenceFailure | None:
        """The next message, failures first; None once closed and empty."""
        while not self._failures and not self._batches:
            if self._closed:
                return None
            self._filled.clear()
            await self._filled.wait()
        return self._failures.popleft() if self._failures else self._batches.popleft()
