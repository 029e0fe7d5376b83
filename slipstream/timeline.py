"""What happened when, lane by lane, in a file that Perfetto and Chrome show. Knows times; not what they mean."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, Protocol

MAX_SPANS: Final = 500_000  # about two minutes of a busy verifier; the oldest go first
_NOTHING: Final = nullcontext()


class Timeline(Protocol):
    @property
    def is_on(self) -> bool:
        """Whether anything is kept; for what is dear to find out."""

    def span(self, lane: str, name: str) -> AbstractContextManager[None]:
        """Notes how long the block takes."""

    def add(self, lane: str, name: str, start: float, end: float) -> None:
        """Notes a span between two readings of time.perf_counter()."""


class NoTimeline:
    """Notes nothing, at the price of a call."""

    is_on = False

    def span(self, lane: str, name: str) -> AbstractContextManager[None]:
        return _NOTHING

    def add(self, lane: str, name: str, start: float, end: float) -> None:
        return


NO_TIMELINE: Final[Timeline] = NoTimeline()


class FileTimeline:
    """Keeps the newest spans in memory, from any thread, until they are written."""

    is_on = True

    def __init__(self, path: Path, max_spans: int = MAX_SPANS) -> None:
        self._path = path
        self._spans: deque[tuple[str, str, float, float]] = deque(maxlen=max_spans)

    @contextmanager
    def span(self, lane: str, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.add(lane, name, start, time.perf_counter())

    def add(self, lane: str, name: str, start: float, end: float) -> None:
        self._spans.append((lane, name, start, end))

    def write(self) -> None:
        """One process with a thread for each lane, in the order in which the lanes were first used."""
        spans = list(self._spans)
        lanes = {lane: number for number, lane in enumerate(dict.fromkeys(lane for lane, *_ in spans), start=1)}
        events = [_metadata("thread_name", number, name=lane) for lane, number in lanes.items()]
        events += [_metadata("thread_sort_index", number, sort_index=number) for number in lanes.values()]
        for lane, name, start, end in spans:
            at = {"ts": round(start * 1e6, 1), "dur": round((end - start) * 1e6, 1)}
            events.append({"ph": "X", "pid": 1, "tid": lanes[lane], "name": name, **at})
        self._path.write_text(json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}))


def _metadata(kind: str, lane: int, **values: Any) -> dict[str, Any]:
    return {"ph": "M", "pid": 1, "tid": lane, "name": kind, "args": values}


@contextmanager
def timeline_in(path: Path | None) -> Iterator[Timeline]:
    """A timeline that is written when the block ends; without a path one that costs nothing."""
    if path is None:
        yield NO_TIMELINE
        return
    timeline = FileTimeline(path)
    path.write_text("")  # a place that cannot be written to fails before serving, not after
    try:
        yield timeline
    finally:
        timeline.write()
