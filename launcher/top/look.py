"""One look at the metrics of all services. Knows Prometheus text; not what any metric means."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from launcher.run_file import Listed
from launcher.scrape import metrics_text

ASK_SECONDS = 2.0
MAX_AT_ONCE = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class Look:
    """What one service shows; nothing if it cannot be reached."""

    name: str
    at: float  # by time.monotonic()
    samples: tuple[Sample, ...] = ()

    @property
    def is_there(self) -> bool:
        return bool(self.samples)

    def total(self, metric: str, **labels: str) -> float:
        """Over all label values that are not given."""
        return sum(
            sample.value for sample in self.samples if sample.name == metric and labels.items() <= sample.labels.items()
        )

    def values_of(self, metric: str, *labels: str) -> set[tuple[str, ...]]:
        """The combinations of label values that there are."""
        return {tuple(s.labels.get(label, "") for label in labels) for s in self.samples if s.name == metric}


def look_at(services: Sequence[Listed]) -> list[Look]:
    """At all of them at the same time, in their order."""
    with ThreadPoolExecutor(MAX_AT_ONCE) as threads:
        return list(threads.map(_look, services))


def _look(service: Listed) -> Look:
    text = metrics_text(service.metrics, ASK_SECONDS)
    at = time.monotonic()
    try:
        families = list(text_string_to_metric_families(text or ""))
    except ValueError:  # something else answers there
        families = []
    return Look(name=service.name, at=at, samples=tuple(sample for one in families for sample in one.samples))
