"""Between a session, which never waits, and its client, which may be slow. Knows deltas; no peer, no gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from gateway.completion import Delta
from slipstream.errors import TooSlow
from slipstream.request import FinishReason


class ClientStream:
    """A bounded queue that merges what waits in it into one delta."""

    def __init__(self, max_unsent_tokens: int) -> None:
        self._max_unsent_tokens = max_unsent_tokens
        self._pending: Delta | None = None
        self._error: Exception | None = None
        self._wake = asyncio.Event()

    def put(self, delta: Delta) -> None:
        """Raises TooSlow if the client has not taken what it should have by now; the rest is up to the session."""
        if self._pending is None:
            self._pending = delta
        elif len(self._pending.token_ids) + len(delta.token_ids) > self._max_unsent_tokens:
            raise TooSlow(
                f"the client is too slow: {len(self._pending.token_ids)} tokens wait to be read "
                f"(limit {self._max_unsent_tokens}); read faster or ask for fewer"
            )
        else:
            self._pending.append(delta)
        self._wake.set()

    def fail(self, error: Exception) -> None:
        """Ends the stream: what is pending is still told, then the error is raised."""
        if self._error is None:
            self._error = error
            self._wake.set()

    async def __aiter__(self) -> AsyncIterator[Delta]:
        """Everything pending at one time as one delta; ends after the one with a finish reason."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            delta, self._pending = self._pending, None
            if delta is not None:
                self._wake.set()  # an error may wait behind it
                yield delta
                if delta.finish_reason is not FinishReason.NONE:
                    return
            elif self._error is not None:
                raise self._error
