"""When a step will end is learnt from the ones before."""

from __future__ import annotations

import pytest

from slipstream.engine import step_times
from slipstream.engine.buckets import Bucket
from slipstream.engine.step_times import StepTimes

SMALL, LARGE = Bucket(1, 1, 1), Bucket(8, 1, 8)


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(step_times, "time", clock)
    return clock


def run(times: StepTimes, clock: Clock, bucket: Bucket, seconds: float) -> None:
    launched = times.launched(bucket)
    clock.now += seconds
    times.ended(bucket, launched)


def test_an_unknown_size_is_expected_to_end_at_once_and_a_known_one_after_its_time(clock: Clock) -> None:
    times = StepTimes()
    times.launched(SMALL)
    assert times.expected_end == clock.now
    times = StepTimes()
    run(times, clock, SMALL, 4.0)
    times.launched(SMALL)
    assert times.expected_end == clock.now + 4.0


def test_a_shorter_time_counts_at_once_and_a_longer_one_by_a_quarter(clock: Clock) -> None:
    times = StepTimes()
    for seconds in (4.0, 8.0, 3.0):
        run(times, clock, SMALL, seconds)
    assert times.seconds(SMALL) == 3.0
    run(times, clock, SMALL, 7.0)
    assert times.seconds(SMALL) == 4.0


def test_a_time_that_was_once_too_long_is_given_up_though_nobody_looks_before_it_is_over(clock: Clock) -> None:
    times = StepTimes()
    run(times, clock, SMALL, 74.0)  # something held it up
    for _ in range(20):
        launched = times.launched(SMALL)
        looked = max(times.expected_end, clock.now)
        unseen = looked > launched + 5.0
        clock.now = max(looked, launched + 5.0)
        times.ended(SMALL, launched, unseen=unseen)
    assert 2.5 < times.seconds(SMALL) <= 5.0


def test_a_step_behind_another_one_begins_when_that_ends(clock: Clock) -> None:
    times = StepTimes()
    run(times, clock, SMALL, 4.0)
    run(times, clock, LARGE, 6.0)
    first = times.launched(SMALL)
    clock.now += 1.0
    second = times.launched(LARGE)
    assert times.expected_end == first + 4.0 + 6.0
    clock.now += 3.0
    times.ended(SMALL, first)
    clock.now += 6.0
    times.ended(LARGE, second)
    assert (times.seconds(SMALL), times.seconds(LARGE)) == (4.0, 6.0)
