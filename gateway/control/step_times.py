"""How long a pass takes: by its tokens, by how many sequences run, by how long is drafted elsewhere meanwhile. Knows
measured times; no request.

Each load, that is to its nearest power of two, has a curve. Drafting has a price for a lone sequence, which may wait
for it, and one for more. A curve goes through the means of what was measured without drafting elsewhere, or with it and
its price taken off, evened out so that more tokens never take less time. Beyond what was measured it goes on as it went
before, and with one measurement only it rises gently: too low a guess is tried and then measured, too high a one never
would be.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from gateway.control.price import Price

_BUCKETS_PER_DOUBLING: Final = 8
_LEAST_WEIGHT: Final = 0.05  # of the newest measurement in a mean
_BUSY_WEIGHT: Final = 0.3  # of one with drafting, beside one without
_GENTLE: Final = 0.25  # of proportional growth, where one number of tokens was measured only
_OUTLIER: Final = 2.0  # times what was expected; a stall counts for no more, a price that was too high for no less
_LONE_SPREAD: Final = 0.1  # of the price: its drafter mostly works while it waits
_CROWD_SPREAD: Final = 1.0
_SHORTEST: Final = 1e-6  # seconds of a pass that says anything
_NOISE: Final = 0.1  # spread of passes, as a share, before it was measured

Point = tuple[float, float]  # tokens, seconds


class Mean:
    """Of the first few all alike, then of about the last twenty."""

    __slots__ = ("count", "value")

    def __init__(self) -> None:
        self.value = 0.0
        self.count = 0.0

    def add(self, value: float, weight: float = 1.0) -> None:
        self.count += weight
        self.value += weight * max(_LEAST_WEIGHT, 1 / max(1.0, self.count)) * (value - self.value)


@dataclass(slots=True)
class _Block:
    """Neighbouring measurements that were evened out."""

    points: list[float]
    seconds: float


class Curve:
    """Of one load."""

    def __init__(self) -> None:
        self._buckets: dict[int, tuple[Mean, Mean]] = {}  # tokens and seconds
        self._points: list[Point] | None = None

    @property
    def known(self) -> bool:
        return bool(self._buckets)

    def note(self, num_tokens: int, seconds: float, weight: float = 1.0) -> None:
        if seconds <= 0:
            return  # a clock that has not moved says nothing
        key = int(_BUCKETS_PER_DOUBLING * math.log2(num_tokens))
        tokens, times = self._buckets.setdefault(key, (Mean(), Mean()))
        is_first = not times.count
        if not is_first:
            self._shift(times, 1 + weight * _LEAST_WEIGHT * (min(seconds / times.value, _OUTLIER) - 1))
        tokens.add(num_tokens, 1.0 if is_first else weight)
        times.add(seconds, 1.0 if is_first else weight)
        self._points = None

    def _shift(self, measured: Mean, factor: float) -> None:
        """A machine that becomes slower does so for all: else what is not measured now would look as it did."""
        for _, times in self._buckets.values():
            if times is not measured:
                times.value *= factor

    def seconds(self, num_tokens: float) -> float:
        if self._points is None:
            means = (mean for _, mean in sorted(self._buckets.items()))
            self._points = _evened([(tokens.value, seconds.value) for tokens, seconds in means])
        return _read(self._points, num_tokens)


class StepTimes:
    def __init__(self) -> None:
        self._curves: dict[int, Curve] = {}  # by the load's magnitude
        self._lone, self._crowd = Price(_LONE_SPREAD), Price(_CROWD_SPREAD)
        self._noise = Mean()
        self._untold = 0.0  # by how much passes were longer while a drafter was at work that has not told its time

    @property
    def known(self) -> bool:
        return bool(self._curves)

    def note(self, num_tokens: int, seconds: float, *, num_running: int = 1, drafting: float | None = 0.0) -> None:
        """`drafting`: seconds for which a drafter elsewhere was at work; None if it was asked and has told nothing yet.

        It tells the time of what it dropped, too, but with the next drafts that it has.
        """
        if num_tokens < 1 or seconds < _SHORTEST:
            return
        load = magnitude(num_running)
        is_new = load not in self._curves
        curve = self._curves.setdefault(load, Curve())
        if is_new:
            curve.note(num_tokens, seconds)
            return
        expected, price = curve.seconds(num_tokens), self.price(num_running)
        seconds = min(seconds, _OUTLIER * (expected + price.cautious * (drafting or 0.0)))
        if drafting is None:
            self._untold += seconds - expected
            return
        if drafting:
            longer = seconds - expected + self._untold
            price.note(drafting, longer, self._noise_share * expected)
            seconds = max(expected / _OUTLIER, expected + longer - price.mean * drafting)
        else:
            self._noise.add(abs(seconds / expected - 1))
        self._untold = 0.0
        curve.note(num_tokens, seconds, _BUSY_WEIGHT if drafting else 1.0)

    def seconds(self, num_tokens: float, num_running: float = 1) -> float:
        """Of a pass with so many tokens, nothing being drafted elsewhere; raises unless something was measured."""
        return self._curves[_nearest(self._curves, num_running)].seconds(num_tokens)

    def price(self, num_running: float) -> Price:
        """Of a second for which a drafter elsewhere is at work."""
        return self._lone if num_running <= 1 else self._crowd

    @property
    def _noise_share(self) -> float:
        return max(0.02, self._noise.value if self._noise.count > 1 / _LEAST_WEIGHT else _NOISE)


class DraftTimes:
    """Of one proposer that drafts elsewhere."""

    def __init__(self) -> None:
        self._per_token = Curve()  # by the sequences that it drafts for
        self._round_trip = Mean()

    def seconds_per_token(self, num_sequences: float = 1) -> float:
        """Each for all of so many sequences."""
        return self._per_token.seconds(num_sequences) if self._per_token.known else 0.0

    @property
    def round_trip(self) -> float:
        return self._round_trip.value

    def note(self, *, draft_us: int, wire_us: int, num_draft_tokens: int, num_sequences: int = 1) -> None:
        """`wire_us` is 0 for what was pushed ahead of need, and says nothing then."""
        each = draft_us * 1e-6 / max(1, num_draft_tokens)
        if self._per_token.known:
            each = min(each, _OUTLIER * self._per_token.seconds(num_sequences))  # else it has read a prompt, too
        self._per_token.note(num_sequences, each)
        if wire_us:
            self._round_trip.add(wire_us * 1e-6)


def magnitude(num_running: float) -> int:
    """Load counts as another when it doubles or halves.

    Powers of two, which most loads are bounded by, lie amid theirs: one request that ends before the next one begins is
    no other load.
    """
    return round(math.log2(max(1.0, num_running)))


def _nearest(known: Collection[int], num_running: float) -> int:
    return min(known, key=lambda load: abs(load - magnitude(num_running)))


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
