"""Numbers that one thread adds to and any thread may read. Knows labels and Prometheus' families; no service.

prometheus_client's own counters take a lock and look labels up at each update: several times the cost of the plain
additions here, on the thread that drives an engine. These are turned into its families only when somebody scrapes. A
scrape during an update may miss the newest addition to one number; it never makes the writer wait.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from itertools import accumulate
from typing import Any, Final, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

Labels = tuple[str, ...]

MAX_SERIES: Final = 1000  # of one metric: names that a peer invents must not fill the memory
OTHER: Final = "other"  # stands for every label beyond them

SECONDS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
SIZES: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


class Instrument(Protocol):
    def collect(self) -> Sequence[Metric]:
        """The numbers as they stand."""


class Counter:
    """A sum that only grows, for each combination of labels."""

    def __init__(self, name: str, documentation: str, labels: Sequence[str] = ()) -> None:
        self._describe = (name, documentation, labels)
        self._values: dict[Labels, float] = {} if labels else {(): 0}

    def add(self, amount: float, *labels: str) -> None:
        labels = bounded(labels, self._values)
        self._values[labels] = self._values.get(labels, 0) + amount

    def value(self, *labels: str) -> float:
        return self._values.get(labels, 0)

    def collect(self) -> Sequence[Metric]:
        name, documentation, label_names = self._describe
        family = CounterMetricFamily(name, documentation, labels=label_names)
        for labels, value in list(self._values.items()):
            family.add_metric(labels, value)
        return [family]


class Histogram:
    """How often values fell into each bucket, and their sum, for each combination of labels."""

    def __init__(
        self, name: str, documentation: str, labels: Sequence[str] = (), *, bounds: Sequence[float] = SECONDS
    ) -> None:
        self._describe = (name, documentation, labels)
        self._bounds = tuple(bounds)
        self._names = [*map(floatToGoString, bounds), "+Inf"]
        self._series: dict[Labels, _Buckets] = {} if labels else {(): _Buckets(len(self._names))}

    def observe(self, value: float, *labels: str) -> None:
        buckets = self._series.get(labels)
        if buckets is None:
            labels = bounded(labels, self._series)
            buckets = self._series.setdefault(labels, _Buckets(len(self._names)))
        buckets.counts[bisect_left(self._bounds, value)] += 1
        buckets.sum += value

    def count(self, *labels: str) -> int:
        buckets = self._series.get(labels)
        return sum(buckets.counts) if buckets else 0

    def collect(self) -> Sequence[Metric]:
        name, documentation, label_names = self._describe
        family = HistogramMetricFamily(name, documentation, labels=label_names)
        for labels, buckets in list(self._series.items()):
            family.add_metric(labels, list(zip(self._names, accumulate(buckets.counts), strict=True)), buckets.sum)
        return [family]


class Gauge:
    """A number that somebody else keeps; asked for when it is scraped, so `read` must be safe from any thread."""

    def __init__(self, name: str, documentation: str, read: Callable[[], float]) -> None:
        self._describe = (name, documentation)
        self._read = read

    def collect(self) -> Sequence[Metric]:
        return [GaugeMetricFamily(*self._describe, value=self._read())]


class _Buckets:
    __slots__ = ("counts", "sum")

    def __init__(self, size: int) -> None:
        self.counts = [0] * size  # not cumulative
        self.sum = 0.0


def bounded(labels: Labels, known: Collection[Any]) -> Labels:
    """The labels, unless they are new and there are too many already."""
    return labels if len(known) < MAX_SERIES or labels in known else (OTHER,) * len(labels)
