"""How one sequence gets a verifier again: whom it asks, how often, how long. Knows addresses and times; no commit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from gateway.peers.pool import Pool

MAX_LOSSES: Final = 5  # without a token in between
RETRY_SECONDS: Final = 0.25  # after all have refused

AnyPool = Pool[Any, Any]


class Recovery:
    """While it waits, `retry` is called at each arrival and now and then; `give_up` once, when it has waited for so
    many seconds since its last token.

    A sequence that outlives several verifiers without a single token is likely to be what ends them, and must not go
    through all of them.
    """

    def __init__(
        self, verifiers: AnyPool, seconds: float, *, retry: Callable[[], None], give_up: Callable[[], None]
    ) -> None:
        self.seconds = seconds
        self.refusals: dict[str, Exception] = {}  # by address: what each said since the last token, or the last retry
        self.lost: list[str] = []  # addresses of verifiers that went down with it since the last token
        self._verifiers = verifiers
        self._retry = retry
        self._give_up = give_up
        self._left = seconds
        self._end: asyncio.TimerHandle | None = None  # runs while it waits
        self._next: asyncio.TimerHandle | None = None

    @property
    def is_hopeless(self) -> bool:
        return len(self.lost) >= MAX_LOSSES

    def note_progress(self) -> None:
        """A verifier made a token."""
        self._left = self.seconds
        self.refusals.clear()
        self.lost.clear()

    def wait(self) -> None:
        """Goes on with a wait that has begun, or begins one."""
        loop = asyncio.get_running_loop()
        if self._end is None:
            self._end = loop.call_later(self._left, self._give_up)
            self._verifiers.subscribe(self._try_again)
        if self.refusals and self._next is None:
            self._next = loop.call_later(RETRY_SECONDS, self._try_again)

    def stop(self) -> None:
        """It waits no more; if it must again before the next token, for what is left of the time."""
        self._verifiers.unsubscribe(self._try_again)
        if self._end is not None:
            self._left = max(0.0, self._end.when() - asyncio.get_running_loop().time())
        for timer in (self._end, self._next):
            if timer is not None:
                timer.cancel()
        self._end = self._next = None

    def _try_again(self) -> None:
        if self._next is not None:
            self._next.cancel()
            self._next = None
        self.refusals.clear()
        self._retry()
