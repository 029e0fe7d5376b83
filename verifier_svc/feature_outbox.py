"""Which features each drafter has not been sent yet, in pieces that fit a message. Knows positions; no network."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from slipstream.engine.feature_tap import FEATURE_DTYPE, FeatureSpan, FeatureTap
from slipstream.exchange import Features
from verifier_svc.active_sequence import ActiveSequence

MAX_BYTES: Final = 256 << 10  # of one piece


class FeatureOutbox:
    """`tap` is where the features are; None: this verifier makes none, and none are wanted."""

    def __init__(self, tap: FeatureTap | None) -> None:
        self._tap = tap

    @property
    def fingerprint(self) -> str:
        """Of the head that the features are for; empty if there is none."""
        return "" if self._tap is None else self._tap.fingerprint

    def take(self, sequences: Iterable[ActiveSequence]) -> dict[int, list[Features]]:
        """By stream, the features of all committed tokens that were computed since they were last sent."""
        taken: dict[int, list[Features]] = defaultdict(list)
        if self._tap is None:
            return taken
        news = [(active, span) for active in sequences if (span := _news(active)) is not None]
        if not news:
            return taken
        row_bytes = self._tap.size * FEATURE_DTYPE.itemsize
        for (active, span), data in zip(news, self._tap.read([span for _, span in news]), strict=True):
            active.num_sent_features = span.end
            taken[active.stream] += _pieces(active.request.sequence_id, span.start, data, row_bytes)
        return taken


def _news(active: ActiveSequence) -> FeatureSpan | None:
    start, end = active.num_sent_features, active.engine.num_computed
    if start is None or start >= end:
        return None
    return FeatureSpan(active.engine.table.block_ids, start, end)


def _pieces(sequence_id: int, start: int, data: bytes, row_bytes: int) -> Iterator[Features]:
    rows = max(1, MAX_BYTES // row_bytes)
    for first in range(0, len(data), rows * row_bytes):
        yield Features(sequence_id, start + first // row_bytes, data[first : first + rows * row_bytes])
