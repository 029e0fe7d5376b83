"""Offline acceptance, against drafting played through token by token."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream.training.acceptance import Acceptance, deep_acceptance, greedy_acceptance


def played(matches: list[bool], num_draft_tokens: int) -> tuple[int, int]:
    """Drafts and accepted tokens of one answer: draft, compare one by one, commit accepted ones and one more."""
    committed, drafts, accepted = 1, 0, 0
    while committed < len(matches):
        drafts += 1
        for _ in range(num_draft_tokens):
            if committed == len(matches) or not matches[committed]:
                break
            accepted += 1
            committed += 1
        committed += 1
    return drafts, accepted


def test_it_counts_what_drafting_token_by_token_would() -> None:
    rng = np.random.default_rng(0)
    rows = [rng.random(length) < 0.6 for length in (1, 2, 3, 17, 60)]
    for num_draft_tokens in (1, 3, 5):
        acceptance = greedy_acceptance(rows, num_draft_tokens)
        expected = np.sum([played(row.tolist(), num_draft_tokens) for row in rows], axis=0)
        assert (acceptance.drafts, sum(acceptance.accepted_at)) == tuple(expected)


def test_a_perfect_drafter_has_every_token_accepted() -> None:
    acceptance = greedy_acceptance([np.ones(13, dtype=bool)], num_draft_tokens=3)
    assert acceptance.per_position == (1.0, 1.0, 1.0)
    assert acceptance.length == 4.0


def test_a_drafter_that_is_never_right_gives_one_token_a_pass() -> None:
    acceptance = greedy_acceptance([np.zeros(9, dtype=bool)], num_draft_tokens=5)
    assert acceptance.length == 1.0
    assert acceptance.drafts == 8


def test_later_positions_are_never_accepted_more_often_than_earlier_ones() -> None:
    shares = greedy_acceptance([np.random.default_rng(1).random(500) < 0.7], 5).per_position
    assert list(shares) == sorted(shares, reverse=True)
    assert shares[0] == pytest.approx(0.7, abs=0.1)


def test_a_drafter_that_differs_by_depth_is_walked_by_where_drafting_began() -> None:
    always, never = [True, True, True], [False, False, False]
    rows = np.array([never, [True, True, False], always, always, [False, True, True], [True, False, False], always])
    # Drafting begins at 1 (two right), then at 4 (none), at 5 (one); answer token 0 is the prompt's own.
    assert deep_acceptance([rows]) == Acceptance(3, (2, 1, 0))


def test_depth_changes_nothing_for_a_drafter_that_does_not_differ_by_it() -> None:
    right = np.random.default_rng(1).random(60) < 0.7
    rows = np.stack([np.concatenate((right[s:], np.zeros(s, bool))) for s in range(4)], axis=1)
    assert deep_acceptance([rows]) == greedy_acceptance([right], 4)
