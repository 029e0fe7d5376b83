"""What services counted between two moments, read from their Prometheus text. Knows names of metrics; asks by HTTP."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from launcher.scrape import metrics_text

SECONDS: Final = 10.0  # to wait for an answer

Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Scraped:
    """Sums, by name and labels."""

    values: Mapping[tuple[str, Labels], float]

    @classmethod
    def of(cls, address: str) -> Scraped:
        """Raises RuntimeError if nothing answers there."""
        text = metrics_text(address, SECONDS)
        if text is None:
            raise RuntimeError(f"no metrics at {address}; is the service still running?")
        samples = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
        return cls({(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in samples})

    def since(self, before: Scraped) -> Scraped:
        return Scraped({key: value - before.values.get(key, 0.0) for key, value in self.values.items()})

    def total(self, name: str, **labels: str) -> float:
        """Over all samples that have these labels, whatever others they have."""
        wanted = set(labels.items())
        return sum(value for (known, found), value in self.values.items() if known == name and wanted <= set(found))

    def mean(self, histogram: str, **labels: str) -> float:
        """0 if nothing was observed."""
        observed = self.total(f"{histogram}_count", **labels)
        return self.total(f"{histogram}_sum", **labels) / observed if observed else 0.0

    def by(self, label: str, name: str, **labels: str) -> dict[str, float]:
        sums: Counter[str] = Counter()
        for (known, found), value in self.values.items():
            if known == name and label in dict(found) and set(labels.items()) <= set(found):
                sums[dict(found)[label]] += value  # type: ignore[assignment]
        return dict(sums)
