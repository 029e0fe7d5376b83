"""What a sequence did round by round, in a bounded number of parts. Knows times and counts; no span, no sequence."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

MAX_PARTS: Final = 32


@dataclass(slots=True)
class Part:
    """One round, or several that followed one another."""

    start: float
    end: float
    num_rounds: int = 1
    busy_seconds: float = 0.0  # computed in it; the rest was between rounds
    counts: Counter[str] = field(default_factory=Counter)

    def take_in(self, later: Part) -> None:
        self.end = max(self.end, later.end)
        self.num_rounds += later.num_rounds
        self.busy_seconds += later.busy_seconds
        self.counts.update(later.counts)


class Rounds:
    """Each round is a part of its own until there are too many; then neighbours are merged, here and from then on."""

    def __init__(self, max_parts: int = MAX_PARTS) -> None:
        self.parts: list[Part] = []
        self._max_parts = max_parts
        self._rounds_a_part = 1

    def add(self, end: float, seconds: float, **counts: int) -> None:
        part = Part(end - seconds, end, busy_seconds=seconds, counts=Counter(counts))
        if self.parts and self.parts[-1].num_rounds < self._rounds_a_part:
            self.parts[-1].take_in(part)
            return
        self.parts.append(part)
        if len(self.parts) > self._max_parts:
            self._merge()

    def _merge(self) -> None:
        for first, second in zip(self.parts[::2], self.parts[1::2], strict=False):
            first.take_in(second)
        self.parts = self.parts[::2]
        self._rounds_a_part *= 2
