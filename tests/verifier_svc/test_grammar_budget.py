"""A grammar may take some time for each token, and more now and then, but not more and more."""

import pytest

from verifier_svc.grammar_budget import SECONDS_PER_TOKEN, SLACK_SECONDS, GrammarBudget


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def spend(budget, clock, seconds):
    with budget.spent():
        clock.now += seconds


def test_what_each_token_allows_for_may_be_spent_for_ever(clock):
    budget = GrammarBudget(clock)
    for _ in range(10_000):
        spend(budget, clock, SECONDS_PER_TOKEN)
        budget.note_tokens(1)
    assert not budget.is_overdrawn


def test_more_may_be_spent_once_but_not_again_and_again(clock):
    budget = GrammarBudget(clock)
    spend(budget, clock, 0.9 * SLACK_SECONDS)
    assert not budget.is_overdrawn
    budget.note_tokens(10)
    spend(budget, clock, 0.9 * SLACK_SECONDS)
    assert budget.is_overdrawn


def test_nothing_is_saved_up(clock):
    budget = GrammarBudget(clock)
    budget.note_tokens(1_000_000)
    spend(budget, clock, 1.1 * SLACK_SECONDS)
    assert budget.is_overdrawn
