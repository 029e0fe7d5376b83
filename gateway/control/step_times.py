"""How long a verify step takes, by the tokens in it, and a drafter its drafts. Knows measured times; no request.

The curve of step times goes through the means of what was measured, evened out so that more tokens never take less
time. Beyond what was measured it goes on as it went before, and with one measurement only it rises gently: too low a
guess is tried and then measured, too high a one never would be.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

_BUCKETS_PER_DOUBLING: Final = 8
_LEAST_WEIGHT: Final = 0.1  # of the newest measurement in a mean
_GENTLE: Final = 0.25  # of proportional growth, where one number of tokens was measured only

Point = tuple[float, float]  # tokens, seconds


class Mean:
    """Of the first few all alike, then of about the last ten."""

    __slots__ = ("count", "value")

    def __init__(self) -> None:
        self.value = 0.0
        self.count = 0

    def add(self, value: float) -> None:
        self.count += 1
        self.value += max(_LEAST_WEIGHT, 1 / self.count) * (value - self.value)


@dataclass(slots=True)
class _Block:
    """Neighbouring measurements that were evened out."""

    points: list[float]
    seconds: float


class StepTimes:
    def __init__(self) -> None:
        self._buckets: dict[int, tuple[Mean, Mean]] = {}  # tokens and seconds
        self._curve: list[Point] | None = None

    @property
    def known(self) -> bool:
        return bool(self._buckets)

    def note(self, num_tokens: int, seconds: float) -> None:
        if num_tokens < 1:
            return
        key = int(_BUCKETS_PER_DOUBLING * math.log2(num_tokens))
        tokens, times = self._buckets.setdefault(key, (Mean(), Mean()))
        tokens.add(num_tokens)
        times.add(seconds)
        self._curve = None

    def seconds(self, num_tokens: float) -> float:
        """Of a step with so many tokens; raises unless something was measured."""
        if self._curve is None:
            means = (mean for _, mean in sorted(self._buckets.items()))
            self._curve = _evened([(tokens.value, seconds.value) for tokens, seconds in means])
        return _read(self._curve, num_tokens)


class DraftTimes:
    """Of one proposer that drafts elsewhere."""

    def __init__(self) -> None:
        self._per_token = Mean()
        self._round_trip = Mean()

    @property
    def seconds_per_token(self) -> float:
        return self._per_token.value

    @property
    def round_trip(self) -> float:
        return self._round_trip.value

    def note(self, *, draft_us: int, wire_us: int, num_draft_tokens: int) -> None:
        """`wire_us` is 0 for what was pushed ahead of need, and says nothing then."""
        self._per_token.add(draft_us * 1e-6 / max(1, num_draft_tokens))
        if wire_us:
            self._round_trip.add(wire_us * 1e-6)


def _evened(points: list[Point]) -> list[Point]:
    """The nearest curve that never falls."""
    blocks: list[_Block] = []
    for tokens, seconds in points:
        block = _Block([tokens], seconds)
        while blocks and blocks[-1].seconds > block.seconds:
            before = blocks.pop()
            sizes = len(before.points), len(block.points)
            mean = (before.seconds * sizes[0] + block.seconds * sizes[1]) / sum(sizes)
            block = _Block(before.points + block.points, mean)
        blocks.append(block)
    return [(tokens, block.seconds) for block in blocks for tokens in block.points]


def _read(curve: list[Point], num_tokens: float) -> float:
    first, last = curve[0], curve[-1]
    if len(curve) == 1:
        return first[1] * (1 + _GENTLE * (num_tokens / first[0] - 1))
    if num_tokens <= first[0]:
        line = _line(curve[0], curve[1], num_tokens)
        return max(line, first[1] * num_tokens / first[0])
    if num_tokens >= last[0]:
        return _line(curve[-2], last, num_tokens)
    left, right = next((a, b) for a, b in pairwise(curve) if num_tokens <= b[0])
    return _line(left, right, num_tokens)


def _line(left: Point, right: Point, at: float) -> float:
    return left[1] + (right[1] - left[1]) * (at - left[0]) / (right[0] - left[0])
