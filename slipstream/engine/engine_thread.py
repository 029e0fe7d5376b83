"""The one thread that drives an engine. Knows a worker and an event loop; knows nothing of models or the network."""

from __future__ import annotations

import asyncio
import logging
import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Generic, Protocol, TypeVar

_LOG = logging.getLogger(__name__)

SWITCH_INTERVAL: Final = 5e-5  # seconds; at the default 5 ms the thread waits that long beside a busy event loop

EventT_contra = TypeVar("EventT_contra", contravariant=True)
OutputT_co = TypeVar("OutputT_co", covariant=True)
Event = TypeVar("Event")
Output = TypeVar("Output")
Made = TypeVar("Made")
T = TypeVar("T")


def apart(make: Callable[[], Made], device: str) -> Made:
    """Makes something; on a CPU in a thread that has ended when this returns, and with it the math threads it used.

    With more of them than cores, libgomp puts them to sleep after every product: a step of 20 ms takes 30.
    """
    if device != "cpu":
        return make()
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="load") as loader:
        return loader.submit(make).result()


def unchanged(said: T) -> T:
    return said


class Worker(Protocol[EventT_contra, OutputT_co]):
    """What runs on the thread. All three are called from it and from nowhere else."""

    def handle(self, event: EventT_contra) -> None:
        """Takes in one event; quick."""

    def step(self) -> OutputT_co | None:
        """Does one step of work. None if there was nothing to do or to say."""

    def next_wake(self) -> float | None:
        """When `step` should run although nothing arrives, by time.monotonic(); None if only an event makes work."""


class EngineThread(Generic[Event, Output]):
    """Feeds events to a worker and its outputs back to the event loop that started it.

    An exception out of the worker ends the thread: it is logged and told to `on_failure` once, and later events are
    ignored. The service should then stop serving.
    """

    def __init__(
        self,
        worker: Worker[Event, Output],
        on_output: Callable[[Output], None],
        on_failure: Callable[[Exception], None] | None = None,
        name: str = "engine",
        lane: Callable[[], AbstractContextManager[None]] = nullcontext,  # what the thread works within
        divert: Callable[[Output], Output] = unchanged,  # on the thread: takes what goes another way; the rest
    ) -> None:
        self._worker = worker
        self._on_output = on_output
        self._on_failure = on_failure
        self._lane = lane
        self._divert = divert
        self._inbox: queue.SimpleQueue[Event | None] = queue.SimpleQueue()  # None: stop
        self._postponed: deque[Event | None] = deque()  # came during a step and must wait for its end
        self._outbox: deque[Output] = deque()
        self._outbox_scheduled = threading.Event()
        self._at_work = threading.Lock()  # who drives the worker
        self._num_handled = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Starts the thread; outputs go to the running event loop. Makes Python switch threads often."""
        sys.setswitchinterval(SWITCH_INTERVAL)
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def post(self, event: Event) -> None:
        """Hands an event over, from any thread, without waiting."""
        self._inbox.put(event)

    async def stop(self, seconds: float | None = None) -> None:
        """Ends the thread after the step it is in, or leaves it there after so long; what was posted is lost."""
        self._inbox.put(None)
        if self._thread.ident is not None:
            await asyncio.to_thread(self._thread.join, seconds)

    def _run(self) -> None:
        try:
            with self._lane():
                self._work()
        except Exception as error:
            _LOG.exception("the engine failed")
            self._on_loop(self._fail, error)

    def _work(self) -> None:
        while (events := self._take()) is not None:
            with self._at_work:
                self._advance(events)

    def _advance(self, events: Iterable[Event]) -> None:
        for event in events:
            self._worker.handle(event)
            self._num_handled += 1
        output = self._worker.step()
        if output is not None:
            self.send(output)

    def claim(self, num_posted: int) -> bool:
        """For a thread that would wait for the worker: whether it may work in its place.

        Only if all that was posted is handled and nothing is being done. `work_here` has to follow.
        """
        if not self._at_work.acquire(blocking=False):
            return False
        if num_posted == self._num_handled and not self._postponed:
            return True
        self._at_work.release()
        return False

    def work_here(self, event: Event) -> None:
        """One event and a step, by the thread that has claimed it; `post` lets the engine's own go on."""
        try:
            with self._lane():
                self._advance((event,))
        finally:
            self._at_work.release()

    def _take(self) -> list[Event] | None:
        """Everything that arrived, after waiting for the first as long as the worker allows; None to stop."""
        events: list[Event] = []
        wake = None if self._postponed else self._worker.next_wake()
        timeout = None if wake is None else max(0.0, wake - time.monotonic())
        try:
            while True:
                event = (
                    self._postponed.popleft() if self._postponed else self._inbox.get(timeout=0 if events else timeout)
                )
                if event is None:
                    return None
                events.append(event)
        except queue.Empty:
            return events

    def take_in(self, may_come: Callable[[Event], bool], until: float) -> None:
        """For the worker in the middle of a step: hands it events until a time, by time.monotonic().

        From the first on that may not come yet all wait for the end of the step, in their order.
        """
        while not self._postponed and (left := until - time.monotonic()) > 0:
            try:
                event = self._inbox.get(timeout=left)
            except queue.Empty:
                return
            if event is None or not may_come(event):
                self._postponed.append(event)
            else:
                self._worker.handle(event)

    def send(self, output: Output) -> None:
        """Hands an output to the event loop; for a worker that has one to say in the middle of a step."""
        rest = self._divert(output)
        if rest:
            self.send_undiverted(rest)

    def send_undiverted(self, output: Output) -> None:
        """The same from any thread, for whoever diverted it."""
        self._outbox.append(output)
        if not self._outbox_scheduled.is_set():  # one wake-up of the loop delivers all that is there by then
            self._outbox_scheduled.set()
            self._on_loop(self._deliver)

    def _deliver(self) -> None:
        self._outbox_scheduled.clear()  # before looking: what comes after this schedules anew
        while self._outbox:
            self._on_output(self._outbox.popleft())

    def _fail(self, error: Exception) -> None:
        if self._on_failure is not None:
            self._on_failure(error)

    def _on_loop(self, callback: Callable[..., None], *args: object) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(callback, *args)
