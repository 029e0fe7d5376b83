"""The curve of step times, and the times of drafters."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.control.step_times import DraftTimes, StepTimes, magnitude


def measured(*points: tuple[int, float]) -> StepTimes:
    times = StepTimes()
    for num_tokens, seconds in points:
        times.note(num_tokens, seconds)
    return times


def test_it_goes_through_what_was_measured_and_straight_between() -> None:
    times = measured((1, 0.010), (5, 0.018))
    assert times.seconds(1) == pytest.approx(0.010)
    assert times.seconds(5) == pytest.approx(0.018)
    assert times.seconds(3) == pytest.approx(0.014)


def test_beyond_what_was_measured_it_goes_on_as_before() -> None:
    times = measured((1, 0.010), (3, 0.012), (5, 0.020))
    assert times.seconds(7) == pytest.approx(0.028)
    assert times.seconds(0.5) == pytest.approx(0.0095)


def test_one_measurement_is_taken_to_rise_gently() -> None:
    times = measured((4, 0.010))
    assert times.seconds(8) == pytest.approx(0.0125)
    assert times.seconds(1) < 0.010


def test_the_newest_measurements_count_most() -> None:
    times = measured(*[(4, 0.010)] * 50, *[(4, 0.030)] * 100)
    assert times.seconds(4) == pytest.approx(0.030, abs=0.001)


def test_a_machine_that_becomes_slower_does_so_for_what_is_not_measured_now_too() -> None:
    times = measured(*[(4, 0.010), (16, 0.020)] * 50, *[(4, 0.030)] * 200)
    assert times.seconds(16) == pytest.approx(0.060, rel=0.15)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 512), st.floats(1e-4, 1.0)), min_size=1, max_size=30))
def test_more_tokens_never_take_less_time(points: list[tuple[int, float]]) -> None:
    times = measured(*points)
    curve = [times.seconds(n / 2) for n in range(1, 1200, 7)]
    assert all(after >= before - 1e-9 for before, after in pairwise(curve))
    assert min(curve) > 0


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 500),
            st.floats(0, 10),
            st.integers(1, 64),
            st.one_of(st.none(), st.just(0.0), st.floats(0, 10)),
        ),
        max_size=40,
    )
)
def test_whatever_is_measured_a_pass_takes_some_time(notes: list[tuple[int, float, int, float | None]]) -> None:
    times = StepTimes()
    times.note(1, 0.010)
    for num_tokens, seconds, num_running, drafting in notes:
        times.note(num_tokens, seconds, num_running=num_running, drafting=drafting)
    assert all(times.seconds(n, running) > 0 for n in (1, 9, 400) for running in (1, 8, 64))


def test_a_pass_that_its_drafter_seems_to_fill_leaves_times_that_can_be_compared() -> None:
    times = measured((4, 0.010))
    for _ in range(200):
        times.note(4, 0.010, drafting=0.010)
        times.note(16, 0.001, drafting=0.100)
        times.note(16, 0.010)
    assert times.seconds(16) > 0


def test_a_step_without_tokens_says_nothing() -> None:
    times = measured((0, 1.0))
    assert not times.known


def test_a_draft_that_took_no_time_says_nothing_about_the_next() -> None:
    times = DraftTimes()
    for draft_us in (0, 1000):
        times.note(draft_us=draft_us, wire_us=0, num_draft_tokens=1)
    assert times.seconds_per_token() == pytest.approx(0.001)


def test_what_was_pushed_ahead_of_need_says_nothing_about_the_round_trip() -> None:
    times = DraftTimes()
    times.note(draft_us=4000, wire_us=0, num_draft_tokens=4)
    times.note(draft_us=4000, wire_us=500, num_draft_tokens=4)
    assert times.seconds_per_token() == pytest.approx(0.001)
    assert times.round_trip == pytest.approx(0.0005)


@pytest.mark.parametrize("most", [4, 16, 64])
def test_a_load_whose_next_request_has_not_begun_yet_is_no_other_load(most: int) -> None:
    assert magnitude(most - 1) == magnitude(most) == magnitude(most + 1)
    assert magnitude(most / 2) < magnitude(most) < magnitude(2 * most)
