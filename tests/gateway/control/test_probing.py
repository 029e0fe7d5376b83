"""How often what does not draft is tried."""

from __future__ import annotations

import pytest

from gateway.control.probing import FIRST_INTERVAL, LAST_INTERVAL, MOST_COST, PROBE_PASSES, Allowance, Probing


def passes_until_due(probing: Probing) -> int:
    passes = 1
    while not probing.is_due():
        passes += 1
    return passes


def test_tries_that_change_nothing_become_rare() -> None:
    probing, waits = Probing(), []
    for _ in range(7):
        waits.append(passes_until_due(probing))
        probing.note_end(changed=False)
    assert waits == [16, 128, 256, 512, 1024, 1024, 1024]
    assert PROBE_PASSES / LAST_INTERVAL < 0.02


def test_one_that_changes_something_is_followed_by_the_next_soon() -> None:
    probing = Probing()
    for changed in (False, False, True):
        passes_until_due(probing)
        probing.note_end(changed=changed)
    assert passes_until_due(probing) == FIRST_INTERVAL


def test_candidates_take_turns() -> None:
    probing = Probing()
    assert [probing.turn(2) for _ in range(4)] == [0, 1, 0, 1]


def test_what_a_try_has_cost_is_earned_before_the_next() -> None:
    allowance = Allowance()
    assert allowance.is_earned
    allowance.note_try(PROBE_PASSES, 0.5)
    passes = 0
    while not allowance.is_earned:
        allowance.note_pass(0.25)  # four requests run
        passes += 1
    assert PROBE_PASSES * 0.5 / (passes / 4) == pytest.approx(MOST_COST, rel=0.01)
