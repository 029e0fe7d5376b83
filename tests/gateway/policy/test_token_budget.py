"""Tokens per minute, by a clock that the test moves."""

from __future__ import annotations

import pytest

from gateway.policy.tenants import Tenant
from gateway.policy.token_budget import TokenBudgets
from slipstream.errors import Exhausted

LIMITED = Tenant(name="limited", anonymous=True, tokens_per_minute=600)
OTHER = Tenant(name="other", key_sha256=("a" * 64,), tokens_per_minute=600)
UNLIMITED = Tenant(name="unlimited", key_sha256=("b" * 64,))


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def budgets(clock: Clock) -> TokenBudgets:
    return TokenBudgets(clock)


def test_a_minutes_tokens_may_be_used_at_once_and_no_more(budgets: TokenBudgets) -> None:
    budgets.charge(LIMITED, 599)
    budgets.check(LIMITED)
    budgets.charge(LIMITED, 1)
    with pytest.raises(Exhausted, match=r"'limited' has used its 600 tokens per minute; try again in 0\.1 s"):
        budgets.check(LIMITED)


def test_what_was_overdrawn_is_waited_for_and_the_caller_is_told_how_long(budgets: TokenBudgets, clock: Clock) -> None:
    budgets.charge(LIMITED, 700)
    with pytest.raises(Exhausted) as raised:
        budgets.check(LIMITED)
    assert raised.value.retry_after_seconds == pytest.approx(10.1)
    clock.now += raised.value.retry_after_seconds + 0.001
    budgets.check(LIMITED)


def test_a_pause_saves_up_one_minute_and_no_more(budgets: TokenBudgets, clock: Clock) -> None:
    budgets.charge(LIMITED, 1)
    clock.now += 3600
    budgets.charge(LIMITED, 600)
    with pytest.raises(Exhausted):
        budgets.check(LIMITED)


def test_in_the_long_run_the_limit_holds(budgets: TokenBudgets, clock: Clock) -> None:
    used = 0
    for _ in range(10_000):
        clock.now += 0.06
        try:
            budgets.check(LIMITED)
        except Exhausted:
            continue
        budgets.charge(LIMITED, 100)
        used += 100
    assert 10 * 600 <= used <= 11 * 600 + 100


def test_tenants_have_their_own(budgets: TokenBudgets) -> None:
    budgets.charge(LIMITED, 10_000)
    budgets.check(OTHER)
    budgets.charge(UNLIMITED, 1 << 60)
    budgets.check(UNLIMITED)


def test_a_raised_limit_applies_at_once(budgets: TokenBudgets, clock: Clock) -> None:
    budgets.charge(LIMITED, 600)
    raised = Tenant(name="limited", anonymous=True, tokens_per_minute=6000)
    clock.now += 0.1
    budgets.check(raised)
