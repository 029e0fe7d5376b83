"""Which outcomes are worth a branch, from committed history alone."""

from __future__ import annotations

import pytest

from drafter_svc.enumeration import MAX_RANKS, OutcomeHistory


def test_probabilities_fall_and_stay_below_one_in_all() -> None:
    outcomes = OutcomeHistory().rank_outcomes(4, 1000)
    assert len(outcomes) == 5 * MAX_RANKS
    probabilities = [outcome.probability for outcome in outcomes]
    assert probabilities == sorted(probabilities, reverse=True)
    assert 0.5 < sum(probabilities) <= 1


def test_the_count_is_the_budget_and_zero_is_none() -> None:
    history = OutcomeHistory()
    assert [len(history.rank_outcomes(3, count)) for count in (0, 1, 5)] == [0, 1, 5]


def test_cold_acceptance_is_geometric_over_positions() -> None:
    history = OutcomeHistory()
    assert history.acceptance(0) == history.acceptance(5) == pytest.approx(0.7)


def test_a_history_of_full_acceptance_spends_the_budget_on_bonus_tokens() -> None:
    history = OutcomeHistory()
    for _ in range(50):
        history.observe_pass(3, 3)
    assert {outcome.num_accepted for outcome in history.rank_outcomes(3, 3)} == {3}


def test_a_history_of_early_rejections_spends_it_on_the_first_position() -> None:
    history = OutcomeHistory()
    for _ in range(50):
        history.observe_pass(0, 3)
    assert {outcome.num_accepted for outcome in history.rank_outcomes(3, 3)} == {0}


def test_positions_after_a_rejection_count_neither_way() -> None:
    history = OutcomeHistory()
    other = OutcomeHistory()
    for _ in range(20):
        history.observe_pass(1, 8)
        other.observe_pass(1, 2)
    assert [history.acceptance(i) for i in range(8)] == [other.acceptance(i) for i in range(8)]


def test_ranks_that_were_right_gain_and_those_that_were_not_lose() -> None:
    history = OutcomeHistory()
    for _ in range(50):
        history.observe_outcome(is_bonus=True, rank=1)
    best, *_ = [outcome for outcome in history.rank_outcomes(2, 99) if outcome.num_accepted == 2]
    assert best.rank == 1
    recovered = [outcome.rank for outcome in history.rank_outcomes(2, 99) if outcome.num_accepted == 0]
    assert recovered == sorted(recovered)


def test_old_passes_are_forgotten() -> None:
    history = OutcomeHistory()
    for _ in range(500):
        history.observe_pass(0, 1)
    for _ in range(200):
        history.observe_pass(1, 1)
    assert history.acceptance(0) > 0.9
