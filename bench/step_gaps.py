"""Where the time between two steps on the GPU goes, from a timeline of them. Knows its lanes; runs nothing."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

FEWEST = 8  # pairs of steps, below which nothing is said
LONGEST_GAP = 20_000.0  # microseconds; what is longer is a pause between requests
HOST_PARTS = ("commit", "schedule", "build")


@dataclass(frozen=True, slots=True)
class Span:
    name: str
    start: float  # microseconds
    end: float


@dataclass(frozen=True, slots=True)
class Gap:
    """Microseconds from the end of one step on the GPU, as the waiting thread saw it, to the start of the next."""

    total: float
    commit: float
    schedule: float
    build: float
    launch: float  # from the call to the start on the GPU, where the thread's waking shows; 0: launched ahead

    @property
    def rest(self) -> float:
        return self.total - self.commit - self.schedule - self.build - self.launch


def read_lanes(path: Path) -> dict[str, list[Span]]:
    """Spans by lane, in the order of their start."""
    events = json.loads(path.read_text())["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    lanes: dict[str, list[Span]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            lanes[names[event["tid"]]].append(Span(event["name"], event["ts"], event["ts"] + event["dur"]))
    return {lane: sorted(spans, key=lambda span: span.start) for lane, spans in lanes.items()}


def gaps(lanes: dict[str, list[Span]]) -> dict[str, list[Gap]]:
    """By the name of the steps: those between two of a kind."""
    found: dict[str, list[Gap]] = defaultdict(list)
    for one, next_one in pairwise(lanes.get("GPU", [])):
        if one.name == next_one.name and next_one.start - one.end < LONGEST_GAP:
            parts = {name: _overlap(lanes["schedule"], name, one.end, next_one.start) for name in HOST_PARTS}
            calls = [span.start for span in lanes["launch"] if one.end <= span.start < next_one.start]
            launch = next_one.start - max(calls) if calls else 0.0
            found[one.name].append(Gap(max(0.0, next_one.start - one.end), **parts, launch=launch))
    return found


def _overlap(spans: Sequence[Span], name: str, start: float, end: float) -> float:
    """Of the time between, how much such spans take."""
    return sum(max(0.0, min(span.end, end) - max(span.start, start)) for span in spans if span.name == name)


def table(path: Path) -> Iterator[str]:
    """A line for each kind of step with enough of them."""
    yield f"{'microseconds, medians':<32}{'gap':>7}{'commit':>8}{'schedule':>9}{'build':>7}{'launch':>8}{'rest':>7}"
    for name, all_gaps in gaps(read_lanes(path)).items():
        if len(all_gaps) >= FEWEST:
            yield f"{name:<32}{_row(all_gaps)}"


def _row(all_gaps: Sequence[Gap]) -> str:
    columns = (("total", 7), ("commit", 8), ("schedule", 9), ("build", 7), ("launch", 8), ("rest", 7))
    return "".join(
        f"{statistics.median(getattr(gap, name) for gap in all_gaps):>{width}.0f}" for name, width in columns
    )
