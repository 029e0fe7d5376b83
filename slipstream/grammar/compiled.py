"""Compiled grammars of one vocabulary, made off the engine's thread and kept while there is room. Knows no sequence."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, Generic, Protocol, TypeVar

from slipstream.errors import Exhausted
from slipstream.request import Grammar

MAX_BYTES = 256 << 20
MAX_PENDING = 32
NUM_AT_ONCE = 2
SLOW_SECONDS: Final = 3.0  # a compilation that takes longer goes on beside the others, which get its place
MAX_SLOW: Final = 4  # such ones at a time: each takes a core
WAITING_SECONDS: Final = 30.0  # for a place; then whoever asked has gone


class Compiled(Protocol):
    @property
    def memory_size_bytes(self) -> int: ...


CompiledT = TypeVar("CompiledT", bound=Compiled)


class CompiledGrammars(Generic[CompiledT]):
    """Each grammar is compiled once, however many ask for it at a time; the least recently asked for go first.

    A compilation cannot be stopped. One that nobody waits for any more keeps its thread until it ends, and counts as
    pending: when too many are, new grammars are refused, and sequences without one notice nothing.
    """

    def __init__(
        self,
        compile_grammar: Callable[[Grammar], CompiledT],
        *,
        max_bytes: int = MAX_BYTES,
        max_pending: int = MAX_PENDING,
        slow_seconds: float = SLOW_SECONDS,
        waiting_seconds: float = WAITING_SECONDS,
    ) -> None:
        self._compile = compile_grammar
        self._max_bytes = max_bytes
        self._max_pending = max_pending
        self._places = threading.Semaphore(NUM_AT_ONCE)
        self._places_of_slow = threading.Semaphore(MAX_SLOW)
        self._slow_seconds = slow_seconds
        self._waiting_seconds = waiting_seconds
        self._lock = threading.Lock()
        self._kept: OrderedDict[Grammar, CompiledT] = OrderedDict()
        self._pending: dict[Grammar, Future[CompiledT]] = {}
        self._num_bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, grammar: Grammar) -> Future[CompiledT]:
        """Done at once if it is kept. Raises Exhausted if too many are being compiled."""
        with self._lock:
            if grammar in self._kept:
                self._kept.move_to_end(grammar)
                known: Future[CompiledT] = Future()
                known.set_result(self._kept[grammar])
                return known
            if grammar in self._pending:
                return self._pending[grammar]
            if len(self._pending) >= self._max_pending:
                raise Exhausted(f"{len(self._pending)} grammars are being compiled, the most allowed; try again later")
            future = self._pending[grammar] = Future()
        # A daemon: the process may end though a compilation does not.
        arguments = (grammar, future, time.monotonic())
        threading.Thread(target=self._run, args=arguments, name="grammar", daemon=True).start()
        return future

    def _run(self, grammar: Grammar, future: Future[CompiledT], asked_at: float) -> None:
        try:
            with _Place(self._places, self._places_of_slow, self._slow_seconds):
                if time.monotonic() - asked_at > self._waiting_seconds:
                    raise Exhausted("grammars before this one took too long to compile; try again later")
                compiled = self._compile(grammar)
        except Exception as error:
            with self._lock:
                del self._pending[grammar]
            future.set_exception(error)
        else:
            self._keep(grammar, compiled)
            future.set_result(compiled)

    def _keep(self, grammar: Grammar, compiled: CompiledT) -> None:
        with self._lock:
            del self._pending[grammar]
            self._kept[grammar] = compiled
            self._num_bytes += compiled.memory_size_bytes
            while self._num_bytes > self._max_bytes and len(self._kept) > 1:
                _, dropped = self._kept.popitem(last=False)
                self._num_bytes -= dropped.memory_size_bytes


class _Place:
    """Held while the block runs; if that takes long it is given up for one of the slow ones', if one is free."""

    def __init__(self, places: threading.Semaphore, places_of_slow: threading.Semaphore, seconds: float) -> None:
        self._held = places
        self._places_of_slow = places_of_slow
        self._timer = threading.Timer(seconds, self._move)
        self._timer.daemon = True
        self._lock = threading.Lock()
        self._over = False

    def __enter__(self) -> None:
        self._held.acquire()
        self._timer.start()

    def __exit__(self, *error: object) -> None:
        self._timer.cancel()
        with self._lock:
            self._over = True
            self._held.release()

    def _move(self) -> None:
        with self._lock:
            if not self._over and self._places_of_slow.acquire(blocking=False):
                self._held.release()
                self._held = self._places_of_slow
