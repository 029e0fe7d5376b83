"""The simulated pipeline, where what must come out can be said with pencil and paper."""

from __future__ import annotations

import pytest

from bench.controller_machines import Machine
from bench.pipeline_simulation import Pipeline, Setting, Text

VERIFY, DRAFT, ROUND_TRIP = 5e-3, 0.5e-3, 1e-3
K = 4
SECONDS = 2.0


def machine(*, draft: float = DRAFT, round_trip: float = ROUND_TRIP, overlaps: bool = True) -> Machine:
    """Passes of one sequence take VERIFY, and each token more a hundredth of it."""
    verify = ((1.0, VERIFY), (101.0, 2 * VERIFY))
    return Machine(
        name="m", verify=verify, draft_token=draft, draft_rows=1000, round_trip=round_trip, overlaps=overlaps
    )


def rate(machine: Machine, acceptance: float, setting: Setting, guess: float = 1.0) -> float:
    text = Text(acceptance=(acceptance,), recovered_first=guess, bonus_first=guess)
    return Pipeline(machine, text, setting).run(SECONDS).tokens / SECONDS


@pytest.mark.parametrize("streams", [1, 8])
def test_without_drafts_every_pass_brings_each_stream_one_token(streams: int) -> None:
    found = rate(machine(), 0.9, Setting(num_draft_tokens=0, num_streams=streams))
    assert found == pytest.approx(streams / machine().verify_seconds(streams), rel=0.01)


@pytest.mark.parametrize("acceptance", [0.0, 1.0])
def test_who_waits_for_drafts_made_after_the_commit_pays_for_drafting_and_for_the_round_trip(acceptance: float) -> None:
    found = rate(machine(), acceptance, Setting(num_draft_tokens=K, max_wait=1.0))
    period = machine().verify_seconds(1 + K) + ROUND_TRIP + K * DRAFT
    assert found == pytest.approx((1 + acceptance * K) / period, rel=0.01)


def test_if_every_outcome_was_drafted_for_in_time_only_passes_take_time() -> None:
    found = rate(machine(), 1.0, Setting(num_draft_tokens=K, fan_out=2, max_wait=1.0))
    assert found == pytest.approx((1 + K) / machine().verify_seconds(1 + K), rel=0.01)


def test_if_drafting_is_slower_than_a_pass_it_sets_the_pace() -> None:
    slow = machine(draft=2e-3)
    found = rate(slow, 1.0, Setting(num_draft_tokens=K, fan_out=1, max_wait=1.0))
    assert found == pytest.approx((1 + K) / (K * 2e-3), rel=0.01)


def test_who_does_not_wait_has_drafts_in_every_other_pass_though_all_of_them_stand() -> None:
    text = Text(acceptance=(1.0,), bonus_first=0.0)
    counts = Pipeline(machine(), text, Setting(num_draft_tokens=K)).run(SECONDS)
    assert counts.hit_rate == pytest.approx(0.5, abs=0.01)
    assert counts.tokens / counts.passes == pytest.approx((1 + K) / 2, rel=0.01)  # its first one was known meanwhile


def test_who_does_not_wait_never_has_drafts_that_do_not_stand() -> None:
    """What was drafted during a pass went on from what that pass has replaced."""
    counts = Pipeline(machine(), Text(acceptance=(0.0,)), Setting(num_draft_tokens=K)).run(SECONDS)
    assert counts.hits == 0


def test_guesses_that_are_never_right_never_hit() -> None:
    setting = Setting(num_draft_tokens=K, fan_out=8, max_wait=1.0)
    assert rate(machine(), 1.0, setting, guess=0.0) < 0.9 * rate(machine(), 1.0, setting, guess=1.0)


def test_patience_ends_a_wait_for_drafts_that_never_stand() -> None:
    """They take four passes' time to come; the bound alone would wait for them."""
    slow, patient = machine(draft=4 * VERIFY / K), Setting(num_draft_tokens=K, max_wait=1.0, is_patient=True)
    bounded = Setting(num_draft_tokens=K, max_wait=1.0)
    plain = rate(slow, 0.0, Setting(num_draft_tokens=0))
    assert rate(slow, 0.0, bounded) < 0.3 * plain
    assert rate(slow, 0.0, patient) > 0.8 * plain


def test_where_both_take_turns_nothing_is_drafted_during_a_pass() -> None:
    setting = Setting(num_draft_tokens=K, fan_out=1, max_wait=1.0)
    assert rate(machine(overlaps=False), 1.0, setting) < rate(machine(), 1.0, setting)


def test_more_guesses_hit_more_often() -> None:
    text = Text(acceptance=(0.7,))
    hits = []
    for fan_out in (0, 2, 8):
        setting = Setting(num_draft_tokens=K, fan_out=fan_out, max_wait=1.0)
        hits.append(Pipeline(machine(), text, setting).run(SECONDS).hit_rate)
    assert hits[0] < hits[1] < hits[2]


def test_a_bound_on_rows_leaves_the_likeliest_outcomes() -> None:
    narrow = Machine(
        name="n", verify=((1.0, VERIFY), (101.0, 2 * VERIFY)), draft_token=DRAFT, draft_rows=4, round_trip=ROUND_TRIP,
        overlaps=True,
    )  # fmt: skip
    bounded, unbounded = (
        rate(narrow, 0.7, Setting(num_draft_tokens=K, fan_out=32, num_streams=4, max_rows=rows)) for rows in (8, 1000)
    )
    assert bounded > unbounded


def test_streams_that_wait_together_take_turns_with_their_drafter() -> None:
    waiting = Setting(
        num_draft_tokens=K, max_wait=1.0, is_patient=True, waits_together=True, draws_at_once=True, num_streams=4
    )
    cycle = machine().verify_seconds(4 * (1 + K)) + ROUND_TRIP + K * DRAFT
    assert rate(machine(), 1.0, waiting) == pytest.approx(4 * (1 + K) / cycle, rel=0.02)
