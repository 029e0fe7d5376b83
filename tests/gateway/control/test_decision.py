"""Gates and goodput on evidence that a test made up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gateway.control.decision import Decision, Known, Reason, decide
from gateway.control.evidence import Asked, Evidence, Trial
from gateway.control.goodput import Load
from gateway.control.step_times import DraftTimes, StepTimes
from gateway.policy.tenants import Tenant
from slipstream.exchange import Commit

AUTO = Tenant(name="auto", anonymous=True, proposers=("auto",), num_draft_tokens=8, fan_out=4)
LISTED = Tenant(name="listed", anonymous=True, proposers=("draft_model", "ngram"), num_draft_tokens=4, fan_out=3)


def flat() -> StepTimes:
    times = StepTimes()
    times.note(1, 0.02)
    times.note(512, 0.02)
    return times


def busy() -> StepTimes:
    times = StepTimes()
    times.note(1, 0.01)
    times.note(512, 5.12)
    return times


def evidence(*, model: float = 0.8, ngram: float = 0.0, long: bool = True, passes: int = 300) -> Evidence:
    """Shares of draft tokens that stand; n-grams find a match as often as they are right."""
    found = Evidence()
    for i in range(passes):
        accepted = round(4 * model)
        found.note_pass(
            Commit(1, i, (1,) * (accepted + 1), accepted, 4, "draft_model", hit=True), Asked(("draft_model",), 4)
        )
        matches = (i % 10) < 10 * ngram
        found.note_trial(Trial(4, 4, is_long=long) if matches else Trial(0, 0, is_long=False))
    return found


def known(times: StepTimes | None = None, **fields: Any) -> Known:
    drafted = DraftTimes()
    drafted.note(draft_us=4000, wire_us=500, num_draft_tokens=4)
    fields = {"evidence": evidence(), "draft_times": {"draft_model": drafted}, "offered": ("draft_model",)} | fields
    return Known(step_times=times or flat(), **fields)


def test_a_listed_order_stays_as_it_is_whatever_was_measured() -> None:
    for found in (evidence(model=0.0), evidence(model=1.0)):
        decision = decide(LISTED, known(evidence=found))
        assert (decision.way, decision.num_draft_tokens, decision.fan_out) == (("draft_model", "ngram"), 4, 3)
        assert decision.reason is Reason.FIXED


def test_before_anything_was_measured_only_who_costs_nothing_drafts() -> None:
    decision = decide(AUTO, known(StepTimes(), evidence=Evidence()))
    assert (decision.way, decision.num_draft_tokens, decision.reason) == (("ngram",), 8, Reason.COLD)
    alone = replace(AUTO, proposers=("draft_model",), control="goodput")
    assert decide(alone, known(StepTimes(), evidence=Evidence())).is_off


def test_a_model_that_is_right_drafts_and_n_grams_do_not_where_they_are_never_right() -> None:
    decision = decide(AUTO, known())
    assert decision.way == ("draft_model",)
    assert decision.num_draft_tokens >= 4
    assert decision.fan_out == 4


def test_n_grams_go_first_where_their_long_matches_are_right() -> None:
    assert decide(AUTO, known(evidence=evidence(model=0.5, ngram=0.5))).way == ("ngram", "draft_model")


def test_n_grams_alone_where_they_serve_every_pass() -> None:
    assert decide(AUTO, known(evidence=evidence(model=0.25, ngram=1.0))).way == ("ngram",)


def test_nobody_drafts_where_nothing_is_accepted_and_tokens_cost() -> None:
    decision = decide(AUTO, known(busy(), evidence=evidence(model=0.0)))
    assert (decision.is_off, decision.reason) == (True, Reason.NONE_PAYS)
    assert decision.options[0].way == ()


def test_nobody_drafts_where_a_full_batch_makes_every_token_cost_as_much_as_it_gives() -> None:
    load = Load(num_sequences=64, is_lone=False)
    assert decide(AUTO, known(busy(), load=load)).reason is Reason.NONE_PAYS


def test_k_stays_within_the_policys_range() -> None:
    narrow = replace(AUTO, min_draft_tokens=2, num_draft_tokens=3)
    assert decide(narrow, known()).num_draft_tokens == 3
    costly = decide(narrow, known(busy(), evidence=evidence(model=1.0), load=Load(num_sequences=1)))
    assert costly.is_off or costly.num_draft_tokens >= 2


def test_only_what_the_policy_lists_is_considered() -> None:
    listed = replace(AUTO, proposers=("ngram",), control="goodput")
    decision = decide(listed, known())
    assert {option.way for option in decision.options} == {(), ("ngram",)}


def test_auto_does_not_try_what_no_drafter_offers() -> None:
    assert "draft_model" not in decide(AUTO, known(offered=())).way
    assert decide(LISTED, known(offered=())).way == ("draft_model", "ngram")


def test_a_way_that_promises_a_little_more_is_not_switched_to() -> None:
    current = Decision(way=("draft_model",), num_draft_tokens=8, fan_out=4, reason=Reason.BEST)
    found = known(evidence=evidence(model=1.0, ngram=0.1))
    assert decide(AUTO, found).way == ("ngram", "draft_model")
    held = decide(AUTO, found, current)
    assert (held.way, held.reason) == (("draft_model",), Reason.HELD)


def rare_matches(every: int) -> Evidence:
    """Of n-grams, one in so many passes, and the four tokens of each stand."""
    found = Evidence()
    for i in range(5000):
        found.note_trial(Trial(0, 0, is_long=False) if (i + every // 2) % every else Trial(4, 4, is_long=False))
    return found


def test_nobody_drafts_where_drafts_promise_almost_nothing() -> None:
    """Less than a little is needed to go on, and more to begin."""
    four = replace(AUTO, proposers=("ngram",), control="goodput", num_draft_tokens=4)
    on = Decision(way=("ngram",), num_draft_tokens=4, fan_out=0, reason=Reason.BEST)
    off = Decision(way=(), num_draft_tokens=0, fan_out=0, reason=Reason.NONE_PAYS)
    for every, goes_on, begins in ((1000, False, False), (125, True, False), (40, True, True)):
        found = known(evidence=rare_matches(every))
        assert (not decide(four, found, on).is_off, not decide(four, found, off).is_off) == (goes_on, begins)


def test_what_a_group_gains_is_held_against_its_own_tokens_not_those_of_others() -> None:
    crowd = Load(num_sequences=1, other_rows=63.0, other_tokens=63.0, num_running=64, is_lone=False)
    off = Decision(way=(), num_draft_tokens=0, fan_out=0, reason=Reason.NONE_PAYS)
    for current in (None, off):
        assert not decide(AUTO, known(drafting_costs_nothing(), load=crowd), current).is_off


def drafting_costs_nothing(num_running: int = 64) -> StepTimes:
    times = flat()
    for _ in range(200):
        times.note(num_running, 0.02, num_running=num_running, drafting=0.004)
    return times


def test_in_a_batch_a_drafter_has_to_be_tried_before_it_is_decided_for() -> None:
    crowd = Load(num_sequences=8, num_running=8, is_lone=False)
    assert "draft_model" not in decide(AUTO, known(load=crowd)).way
    assert "draft_model" in decide(AUTO, known(drafting_costs_nothing(8), load=crowd)).way


def test_a_way_that_is_not_allowed_any_more_is_left_at_once() -> None:
    current = Decision(way=("draft_model",), num_draft_tokens=8, fan_out=4, reason=Reason.BEST)
    ngram_only = replace(AUTO, proposers=("ngram",), control="goodput")
    assert "draft_model" not in decide(ngram_only, known(evidence=evidence(model=1.0)), current).way


@pytest.mark.parametrize("policy", [AUTO, LISTED], ids=lambda policy: policy.name)
def test_above_the_gate_on_running_sequences_nothing_is_drafted(policy: Tenant) -> None:
    gated = replace(policy, off_above_running=8)
    assert not decide(gated, known(num_running=8)).is_off
    assert decide(gated, known(num_running=9)).reason is Reason.RUNNING


def test_a_proposer_below_the_gate_on_acceptance_does_not_draft_and_the_others_do() -> None:
    gated = replace(LISTED, off_below_acceptance=0.5)
    decision = decide(gated, known(evidence=evidence(model=0.25, ngram=1.0)))
    assert (decision.way, decision.reason) == (("ngram",), Reason.ACCEPTANCE)


def test_it_comes_back_when_its_acceptance_is_clearly_above_the_gate() -> None:
    gated = replace(LISTED, proposers=("draft_model",), off_below_acceptance=0.5)
    off = decide(gated, known(evidence=evidence(model=0.25)))
    assert off.is_off
    assert decide(gated, known(evidence=evidence(model=0.5)), off).is_off
    assert not decide(gated, known(evidence=evidence(model=0.75)), off).is_off


def test_a_few_passes_close_no_gate() -> None:
    gated = replace(LISTED, off_below_acceptance=0.5)
    assert decide(gated, known(evidence=evidence(model=0.0, passes=3))).way == ("draft_model", "ngram")


def test_a_k_outside_a_changed_range_is_left_at_once() -> None:
    current = Decision(way=("draft_model",), num_draft_tokens=8, fan_out=4, reason=Reason.BEST)
    assert decide(replace(AUTO, num_draft_tokens=3), known(), current).num_draft_tokens == 3
    few = replace(current, num_draft_tokens=2)
    assert decide(replace(AUTO, min_draft_tokens=6), known(), few).num_draft_tokens >= 6


def test_one_outcome_more_or_less_is_no_reason_to_change() -> None:
    best = decide(AUTO, known())
    for fan_out, expected in ((best.fan_out - 1, best.fan_out - 1), (best.fan_out - 2, best.fan_out)):
        assert decide(AUTO, known(), replace(best, fan_out=fan_out)).fan_out == expected


def test_a_slow_drafter_gets_fewer_outcomes_to_draft_for() -> None:
    slow = DraftTimes()
    slow.note(draft_us=16000, wire_us=500, num_draft_tokens=4)
    policy = replace(AUTO, proposers=("draft_model",), control="goodput")
    fast, lagging = (decide(policy, known(draft_times={"draft_model": d})) for d in (DraftTimes(), slow))
    assert 0 < lagging.fan_out < fast.fan_out
