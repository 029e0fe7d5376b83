"""Drafts stop where output, context or the draft model's vocabulary does."""

from __future__ import annotations

from drafter_svc.draft_bounds import DraftBounds
from drafter_svc.proposers.proposer import Limits
from tests.drafter_svc.scripted import request

LIMITS = Limits(num_blocks=8, block_size=4, max_model_len=20, vocab_size=12)


def bounds(max_tokens: int = 100) -> DraftBounds:
    return DraftBounds(request(num_draft_tokens=3, max_tokens=max_tokens), LIMITS)


def test_as_many_are_drafted_as_the_context_holds() -> None:
    assert [bounds().goal(num_before) for num_before in (5, 17, 18, 20, 25)] == [3, 3, 2, 0, 0]
    assert not bounds().is_over(19)
    assert bounds().is_over(20)


def test_the_last_token_of_the_output_is_the_verifiers_own() -> None:
    assert [bounds(max_tokens=4).goal(num_before) for num_before in (5, 6, 7, 8, 9)] == [3, 2, 1, 0, 0]


def test_a_token_that_cannot_be_fed_ends_drafting() -> None:
    one = bounds()
    one.note([3, 11])
    assert one.goal(7) == 3
    one.note([12])
    assert one.goal(8) == 0
    assert one.is_over(8)


def test_another_k_applies_at_once() -> None:
    one = bounds()
    one.num_draft_tokens = 1
    assert one.goal(5) == 1
