"""What drafting gave so far, read from a service's Prometheus text. Knows names of counters; no gRPC."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from launcher.scrape import metrics_text

PASSES: Final = "slipstream_passes_total"
COMMITTED: Final = "slipstream_committed_tokens_total"
DRAFTS: Final = "slipstream_spec_decode_num_drafts_total"
ACCEPTED: Final = "slipstream_spec_decode_num_accepted_tokens_total"


@dataclass(frozen=True, kw_only=True, slots=True)
class PassTotals:
    """Over all tenants and proposers, since the service started."""

    num_passes: int = 0
    num_committed: int = 0
    num_drafts: int = 0  # passes with at least one draft token
    num_accepted: int = 0

    @property
    def acceptance_length(self) -> float:
        """1 + accepted / drafts."""
        return 1 + self.num_accepted / self.num_drafts if self.num_drafts else 1.0

    @property
    def tokens_per_pass(self) -> float:
        return self.num_committed / self.num_passes if self.num_passes else 0.0


def passes_of(address: str, seconds: float) -> PassTotals | None:
    """None if nothing answers there."""
    text = metrics_text(address, seconds)
    try:
        return None if text is None else totals(text)
    except ValueError:
        return None


def totals(text: str) -> PassTotals:
    """Raises ValueError if the text is not Prometheus'."""
    sums: Counter[str] = Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            sums[sample.name] += int(sample.value) if sample.name.endswith("_total") else 0
    return PassTotals(
        num_passes=sums[PASSES], num_committed=sums[COMMITTED], num_drafts=sums[DRAFTS], num_accepted=sums[ACCEPTED]
    )
