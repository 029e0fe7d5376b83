"""How long a wait for drafts may be, by what passes cost and brought."""

import math

import pytest

from verifier_svc.patience import Patience


def after(*passes: tuple[float, int, int]) -> Patience:
    """Passes by their seconds, draft tokens and accepted ones."""
    patience = Patience()
    for seconds, num_draft_tokens, num_accepted in passes:
        patience.note_pass(seconds)
        if num_draft_tokens:
            patience.note_drafts(num_accepted)
        else:
            patience.note_none()
    return patience


def test_before_anything_was_measured_it_sets_no_bound() -> None:
    assert Patience().seconds == math.inf


def test_a_wait_may_cost_what_the_accepted_tokens_would_have_cost_without_drafts() -> None:
    assert after(*[(0.02, 4, 3)] * 400).seconds == pytest.approx(3 * 0.02, rel=1e-3)


def test_drafts_that_are_never_accepted_are_not_waited_for() -> None:
    assert after(*[(0.02, 4, 0)] * 400).seconds < 1e-4


def test_who_never_delivers_is_not_waited_for() -> None:
    assert after(*[(0.02, 0, 0)] * 100).seconds < 1e-4


def test_patience_returns_with_drafts_that_come_by_themselves() -> None:
    assert after(*[(0.02, 0, 0)] * 100, *[(0.02, 4, 2)] * 40).seconds == pytest.approx(2 * 0.02, rel=0.05)


def test_a_few_bad_passes_do_not_end_waits_that_pay() -> None:
    """A fifth of the passes went without drafts that came after 0.6 of a pass, as a mean over ten passes varies."""
    assert after(*[(0.02, 4, 2)] * 40, *[(0.02, 4, 0)] * 8).seconds > 0.8 * 2 * 0.02


def test_one_bad_pass_changes_little() -> None:
    assert after(*[(0.02, 4, 2)] * 50, (0.02, 4, 0)).seconds > 0.9 * 2 * 0.02 * 0.99
