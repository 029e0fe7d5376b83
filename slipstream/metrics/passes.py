"""Counts of verify passes by tenant and proposer, the same on all three services. Knows commits; no service.

Every number comes from commits, so the services can be compared: wherever all commits were seen,
committed tokens = accepted + passes - cut passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final

from prometheus_client.core import CounterMetricFamily, Metric

from slipstream.exchange import Commit
from slipstream.metrics.instruments import bounded

NO_PROPOSER: Final = "none"  # the label of passes without drafts

_LABELS: Final = ("tenant", "proposer")
_COUNTS: Final = {
    "passes": ("slipstream_passes", "Verify passes."),
    "cut": ("slipstream_cut_passes", "Verify passes whose output ended inside the accepted draft tokens."),
    "committed": ("slipstream_committed_tokens", "Tokens made final."),
    "drafts": ("slipstream_spec_decode_num_drafts", "Verify passes with at least one draft token."),
    "draft_tokens": ("slipstream_spec_decode_num_draft_tokens", "Draft tokens submitted to verify passes."),
    "accepted": ("slipstream_spec_decode_num_accepted_tokens", "Draft tokens accepted."),
}


@dataclass(slots=True)
class PassCounts:
    """Passes of one tenant's sequences with one proposer's drafts."""

    passes: int = 0
    cut: int = 0
    committed: int = 0
    drafts: int = 0
    draft_tokens: int = 0
    accepted: int = 0
    by_accepted: list[int] = field(default_factory=list)  # [i]: passes that accepted exactly i + 1 draft tokens

    def add(self, commit: Commit) -> None:
        num_accepted = commit.num_accepted
        self.passes += 1
        self.committed += len(commit.token_ids)
        self.cut += num_accepted == len(commit.token_ids)
        self.drafts += commit.num_draft_tokens > 0
        self.draft_tokens += commit.num_draft_tokens
        self.accepted += num_accepted
        if num_accepted:
            if num_accepted > len(self.by_accepted):
                self.by_accepted += [0] * (num_accepted - len(self.by_accepted))
            self.by_accepted[num_accepted - 1] += 1

    def accepted_per_position(self) -> list[int]:
        """Draft tokens accepted at each drafted position: a pass that accepted n did so at the first n."""
        return list(accumulate(reversed(self.by_accepted)))[::-1]


class PassTally:
    """An instrument; one thread adds."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, ...], PassCounts] = {}

    def add(self, tenant: str, commit: Commit) -> None:
        labels = bounded((tenant, commit.proposer or NO_PROPOSER), self._counts)
        counts = self._counts.get(labels)
        if counts is None:
            counts = self._counts[labels] = PassCounts()
        counts.add(commit)

    def of(self, tenant: str, proposer: str = NO_PROPOSER) -> PassCounts:
        return self._counts.get((tenant, proposer), PassCounts())

    def collect(self) -> Sequence[Metric]:
        counts = list(self._counts.items())
        return [*_totals(counts), _per_position(counts)]


def _totals(counts: Sequence[tuple[tuple[str, ...], PassCounts]]) -> Iterator[Metric]:
    for attribute, (name, documentation) in _COUNTS.items():
        family = CounterMetricFamily(name, documentation, labels=_LABELS)
        for labels, of_labels in counts:
            family.add_metric(labels, getattr(of_labels, attribute))
        yield family


def _per_position(counts: Sequence[tuple[tuple[str, ...], PassCounts]]) -> Metric:
    family = CounterMetricFamily(
        "slipstream_spec_decode_num_accepted_tokens_per_pos",
        "Draft tokens accepted, by drafted position, 0 the first.",
        labels=(*_LABELS, "position"),
    )
    for labels, of_labels in counts:
        for position, accepted in enumerate(of_labels.accepted_per_position()):
            family.add_metric((*labels, str(position)), accepted)
    return family
