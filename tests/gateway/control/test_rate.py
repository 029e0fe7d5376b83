"""A decayed share that begins at what was expected."""

from __future__ import annotations

import pytest

from gateway.control.rate import Rate


def test_it_begins_at_what_was_expected_and_ends_at_what_was_seen() -> None:
    rate = Rate(0.9, 4.0)
    assert rate.mean(0.3) == 0.3
    for _ in range(500):
        rate.add(1.0)
    assert rate.mean(0.3) == pytest.approx(1 - 0.7 * 4 / 14, abs=0.01)


def test_without_weight_only_what_was_seen_counts() -> None:
    rate = Rate(0.9, 0.0)
    rate.add(0.25)
    assert rate.mean(0.9) == 0.25


def test_what_is_old_counts_for_no_more_than_it_is_given() -> None:
    rate = Rate(0.99, 4.0)
    for _ in range(500):
        rate.add(1.0)
    rate.fade_to(4.0)
    assert rate.trials == 4.0
    assert rate.mean(0.0) == pytest.approx(0.5)


def test_what_was_seen_fades() -> None:
    rate = Rate(0.5, 1.0)
    rate.add(1.0)
    for _ in range(50):
        rate.fade()
    assert rate.mean(0.2) == pytest.approx(0.2)


def test_an_expectation_that_does_not_last_says_nothing_in_the_end() -> None:
    lasting, passing = Rate(0.99, 8.0), Rate(0.99, 8.0, lasting=False)
    for _ in range(500):
        lasting.add(0.0)
        passing.add(0.0)
    assert lasting.mean(0.7) > 0.05
    assert passing.mean(0.7) < 0.001
    passing.fade_to(8.0)
    assert passing.mean(0.7) < 0.001  # what was seen is old, and still all that is known
