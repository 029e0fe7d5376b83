"""How long passes take, between steps too, and what drafting elsewhere adds."""

from __future__ import annotations

import pytest

from gateway.control.evidence import Asked
from gateway.control.pace import Pace
from slipstream.exchange import Commit, StepReport


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Passes:
    """Of one verifier, as a gateway hears of them."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.pace = Pace(self.clock)

    def come(
        self, count: int, *, between: float = 0.0, wait: float = 0.0, drafting: float | None = None, num: int = 4
    ) -> None:
        """`drafting`: seconds as the drafter told them; None: none was asked."""
        asked = Asked() if drafting is None else Asked(("draft_model",), 4, drafting)
        for _ in range(count):
            step = StepReport(num_running=num, num_tokens=num, step_us=20_000)
            self.clock.now += 0.020 + between + wait
            for sequence in range(num):
                commit = Commit(sequence, 9, (1,), wait_us=round(wait * 1e6))
                assert self.pace.note(commit, step, asked) is (sequence == 0)

    def seconds(self, num: int = 4) -> float:
        return self.pace.step_times.seconds(num, num)


def test_what_lies_between_two_steps_counts() -> None:
    passes = Passes()
    passes.come(100, between=0.010)
    assert passes.seconds() == pytest.approx(0.030, abs=0.001)


def test_what_a_lone_sequence_waited_for_drafts_does_not() -> None:
    passes = Passes()
    passes.come(100, wait=0.010, num=1)
    assert passes.seconds(1) == pytest.approx(0.020, abs=0.001)


def test_a_pause_without_requests_does_not_either() -> None:
    passes = Passes()
    for _ in range(50):
        passes.come(1)
        passes.pace.note_idle()
        passes.clock.now += 60.0
    assert passes.seconds() == pytest.approx(0.020, abs=0.001)


def test_what_drafting_adds_to_a_pass_is_its_price_and_not_the_passs_own_time() -> None:
    passes = Passes()
    for _ in range(20):
        passes.come(10)
        passes.come(10, between=0.015, drafting=0.010)
    times = passes.pace.step_times
    assert times.price(4).mean == pytest.approx(1.5, abs=0.2)
    assert passes.seconds() == pytest.approx(0.020, abs=0.002)


def test_where_drafting_adds_nothing_it_is_found_to_be_free() -> None:
    passes = Passes()
    passes.come(20)
    passes.come(100, drafting=0.010)
    assert passes.pace.step_times.price(4).mean < 0.1


def test_the_price_for_a_lone_sequence_is_another() -> None:
    passes = Passes()
    passes.come(20)
    passes.come(50, between=0.015, drafting=0.010)
    assert passes.pace.step_times.price(1).mean == 0.0
    assert passes.pace.step_times.price(64).mean > 1.0


def test_time_of_drafts_that_were_dropped_is_told_late_and_costs_all_the_same() -> None:
    passes = Passes()
    passes.come(20)
    for _ in range(30):
        passes.come(2, between=0.015, drafting=0.0)  # asked, and nothing came
        passes.come(1, between=0.015, drafting=0.030)
    assert passes.pace.step_times.price(4).mean == pytest.approx(1.5, abs=0.2)
    assert passes.seconds() == pytest.approx(0.020, abs=0.002)


def test_sequences_that_a_drafter_works_for_are_counted_step_by_step() -> None:
    passes = Passes()
    for drafting, expected in ((None, 0), (0.010, 4), (None, 0)):
        passes.come(2, drafting=drafting)
        assert passes.pace.num_asked == expected
