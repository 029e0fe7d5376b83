"""What a verifier drafts itself: forced text first, n-grams of committed tokens, and when to wait for others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from slipstream.exchange import DraftToken, LawKind
from slipstream.request import SamplingParams, SequenceRequest
from verifier_svc.draft_tree import DraftPath
from verifier_svc.local_drafts import LocalDrafts

HERE = ("ngram", "grammar")
REPEATING = [5, 6, 7, 8, 5, 6, 7]  # 8 came after 5 6 7


def drafts(*proposers: str, here: tuple[str, ...] = HERE, forced: tuple[int, ...] = ()) -> LocalDrafts:
    request = SequenceRequest(
        sequence_id=1, token_ids=(5,), num_prompt_tokens=1, sampling=SamplingParams(), proposers=proposers
    )
    guide: Any = SimpleNamespace(forced_tokens=forced) if forced else None
    return LocalDrafts(request, here, guide)


def token_ids(path: DraftPath) -> list[int]:
    assert all(token.kind is LawKind.ONE_HOT for token in path.tokens)
    return [token.token_id for token in path.tokens]


def test_n_grams_of_the_committed_tokens_are_drafted_if_the_request_has_them() -> None:
    path = drafts("ngram").path(2, REPEATING)
    assert (path.proposer, token_ids(path)) == ("ngram", [8, 5])
    assert drafts("draft_model").path(2, REPEATING) == DraftPath()
    assert drafts("ngram", here=()).path(2, REPEATING) == DraftPath(), "this verifier has no n-grams"


def test_committed_tokens_are_read_once_and_as_they_grow() -> None:
    local = drafts("ngram")
    assert local.path(2, REPEATING[:4]) == DraftPath()
    assert token_ids(local.path(1, REPEATING)) == [8]


def test_text_that_a_grammar_forces_goes_before_n_grams() -> None:
    path = drafts("ngram", forced=(1, 2, 3)).path(2, REPEATING)
    assert (path.proposer, token_ids(path)) == ("grammar", [1, 2])


def test_nothing_is_drafted_where_no_draft_token_may_be_checked() -> None:
    assert drafts("ngram", forced=(1, 2)).path(0, REPEATING) == DraftPath()


@pytest.mark.parametrize(("num_tokens", "comes_first"), [(0, False), (3, True), (4, True), (5, False)])
def test_forced_text_is_not_kept_waiting_if_it_fills_half_a_pass(num_tokens: int, comes_first: bool) -> None:
    assert drafts("draft_model", forced=(1, 2)).come_first(num_tokens) == comes_first


def test_only_proposers_that_are_elsewhere_are_waited_for() -> None:
    assert drafts("ngram", "draft_model").waits_for_others
    assert not drafts("ngram").waits_for_others
    local = drafts("ngram", "draft_model")
    tokens = (DraftToken(1, LawKind.ONE_HOT),)
    assert local.is_others(DraftPath("draft_model", tokens))
    assert not local.is_others(DraftPath("ngram", tokens))
