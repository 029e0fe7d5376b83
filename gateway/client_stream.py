"""Between a request's sessions, which never wait, and its client, which may be slow. Knows deltas; no peer, no gRPC."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from gateway.completion import Delta
from slipstream.errors import Exhausted
from slipstream.request import FinishReason


class TooSlow(Exhausted):
    """The client does not read what it gets; a verifier with more room would not help."""


class ClientStream:
    """A bounded queue that merges what waits of one sample into one delta. Parts of the prompt stay as they are."""

    def __init__(self, max_unsent_tokens: int, num_samples: int = 1) -> None:
        self._max_unsent_tokens = max_unsent_tokens
        self._num_unfinished = num_samples
        self._prompt: deque[Delta] = deque()
        self._pending: dict[int, Delta] = {}  # by sample
        self._error: Exception | None = None
        self._wake = asyncio.Event()

    def put(self, delta: Delta) -> None:
        """Raises TooSlow if the client has not taken what it should have by now; the rest is up to the session."""
        pending = self._pending.get(delta.index)
        if delta.prompt is not None:
            self._prompt.append(delta)
        elif pending is None:
            self._pending[delta.index] = delta
        elif len(pending.token_ids) + len(delta.token_ids) > self._max_unsent_tokens:
            raise TooSlow(
                f"the client is too slow: {len(pending.token_ids)} tokens wait to be read "
                f"(limit {self._max_unsent_tokens}); read faster or ask for fewer"
            )
        else:
            pending.append(delta)
        self._wake.set()

    def fail(self, error: Exception) -> None:
        """Ends the stream: what is pending is still delivered, then the error is raised."""
        if self._error is None:
            self._error = error
            self._wake.set()

    async def __aiter__(self) -> AsyncIterator[Delta]:
        """What is pending of one sample at one time as one delta; ends when all have had a finish reason."""
        while self._num_unfinished:
            await self._wake.wait()
            self._wake.clear()
            while (delta := self._take()) is not None:
                yield delta
                self._num_unfinished -= delta.finish_reason is not FinishReason.NONE
            if self._error is not None and self._num_unfinished:
                raise self._error

    def _take(self) -> Delta | None:
        if self._prompt:
            return self._prompt.popleft()
        if not self._pending:
            return None
        return self._pending.pop(next(iter(self._pending)))
