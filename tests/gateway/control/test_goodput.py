"""The formula, and what it prefers."""

from __future__ import annotations

import pytest

from gateway.control.goodput import Load, Source, best_fan_out, best_num_tokens, goodput
from gateway.control.step_times import StepTimes

LONE = Load()


def flat(seconds: float = 0.02) -> StepTimes:
    """A GPU that reads its weights: more tokens cost nothing."""
    times = StepTimes()
    times.note(1, seconds)
    times.note(512, seconds)
    return times


def proportional(seconds: float = 0.01) -> StepTimes:
    """A machine that is busy: every token costs the same."""
    times = StepTimes()
    times.note(1, seconds)
    times.note(512, 512 * seconds)
    return times


def stepped() -> StepTimes:
    """Up to four tokens cost as much as one, eight twice as much: a number of tokens that ends a kernel's tile."""
    times = StepTimes()
    for num_tokens, seconds in ((1, 0.01), (4, 0.01), (8, 0.02), (64, 0.02)):
        times.note(num_tokens, seconds)
    return times


def source(rate: float = 0.8, hit: float = 1.0, **fields: float) -> Source:
    return Source(acceptance=(rate,) * 16, hit=hit, **fields)


def test_without_drafts_each_sequence_gets_one_token_a_step() -> None:
    load = Load(num_sequences=8, is_lone=False)
    assert goodput((), 0, load, flat(0.02)) == pytest.approx(8 / 0.02)


def test_accepted_tokens_come_on_top() -> None:
    assert source(0.5).expected_accepted(3) == pytest.approx(0.5 + 0.25 + 0.125)
    assert goodput([source(0.5)], 2, LONE, flat(0.02)) == pytest.approx(1.75 / 0.02)


def test_a_drafter_that_takes_longer_than_the_step_is_waited_for() -> None:
    slow = source(0.5, draft_seconds=0.02, round_trip=0.01)
    assert goodput([slow], 2, LONE, flat(0.02)) == pytest.approx(1.75 / 0.05)


def test_a_miss_gives_one_token_and_costs_its_wait() -> None:
    missing = source(0.5, hit=0.5, wait_seconds=0.01)
    assert goodput([missing], 2, LONE, flat(0.02)) == pytest.approx((1 + 0.5 * 0.75) / 0.025)


def test_nobody_waits_in_a_batch() -> None:
    missing = source(0.5, hit=0.5, wait_seconds=0.01)
    several = Load(num_sequences=2, is_lone=False)
    assert goodput([missing], 2, several, flat(0.02)) == pytest.approx(2 * (1 + 0.5 * 0.75) / 0.02)


def test_the_second_proposer_has_the_passes_that_the_first_leaves() -> None:
    first, second = source(1.0, hit=0.25), source(0.5, hit=1.0)
    assert goodput([first, second], 1, LONE, flat(1.0)) == pytest.approx(1 + 0.25 + 0.75 * 0.5)


def test_where_tokens_are_free_more_drafts_are_better() -> None:
    assert best_num_tokens([source(0.9)], 1, 16, LONE, flat())[0] == 16


def test_tokens_that_promise_hardly_anything_are_not_drafted() -> None:
    assert best_num_tokens([source(0.5)], 1, 16, LONE, flat())[0] == 6


def test_where_every_token_costs_as_much_as_it_could_give_the_fewest_are_best() -> None:
    busy = Load(num_sequences=32, is_lone=False)
    chosen, promised = best_num_tokens([source(0.8)], 1, 16, busy, proportional())
    assert chosen == 1
    assert promised < goodput((), 0, busy, proportional())


def test_a_lone_sequence_pays_for_all_tokens_of_the_passes_that_have_drafts() -> None:
    rare = source(0.5, hit=0.25)  # on average it checks two tokens of a pass with seven drafts, which would be free
    assert goodput([rare], 7, LONE, stepped()) == pytest.approx((1 + 0.25 * 127 / 128) / (0.75 * 0.01 + 0.25 * 0.02))
    assert best_num_tokens([rare], 1, 7, LONE, stepped())[0] == 3


def test_the_rest_of_the_step_dilutes_what_a_tenant_can_gain() -> None:
    def gain(load: Load) -> float:
        return goodput([source(0.8)], 4, load, flat()) / goodput((), 0, load, flat())

    assert gain(Load(num_sequences=1, other_rows=30, other_tokens=30, is_lone=False)) < gain(LONE)


def test_as_many_outcomes_as_can_be_drafted_while_a_pass_runs() -> None:
    assert best_fan_out(8, 4, source(draft_seconds=0.001), 0.02) == 8
    assert best_fan_out(8, 4, source(draft_seconds=0.005), 0.02) == 4
    assert best_fan_out(8, 4, source(draft_seconds=10.0), 0.02) == 1
    assert best_fan_out(0, 4, source(draft_seconds=0.001), 0.02) == 0


def test_fewer_tokens_are_waited_for_less() -> None:
    waited = source(0.5, hit=0.0, wait_seconds=0.02, wait_tokens=4.0, draft_seconds=0.004)
    assert [waited.wait(k) for k in (4, 2, 6)] == pytest.approx([0.02, 0.012, 0.028])
    assert source(wait_seconds=0.001, wait_tokens=4.0, draft_seconds=0.004).wait(1) == 0.0


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("num_sequences", [1, 4, 32])
@pytest.mark.parametrize("times", [flat(), proportional(0.001), stepped()])
def test_no_k_is_missed_by_not_looking_further_than_some_that_promise_less(
    rate: float, num_sequences: int, times: StepTimes
) -> None:
    sources = [source(rate, hit=0.5)]
    load = Load(num_sequences=num_sequences, num_running=num_sequences, is_lone=num_sequences == 1)
    every = [(k, goodput(sources, k, load, times)) for k in range(1, 17)]
    least = max(promised for _, promised in every) / 1.01
    assert best_num_tokens(sources, 1, 16, load, times) == next(pair for pair in every if pair[1] >= least)
