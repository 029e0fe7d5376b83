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
