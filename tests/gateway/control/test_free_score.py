"""N-gram predictions, scored against what became final."""

from __future__ import annotations

from gateway.control.evidence import Trial
from gateway.control.free_score import FreeScore
from slipstream.proposers.ngram import NgramProposer


def scored(prompt: list[int], *commits: list[int], num_tokens: int = 3) -> list[Trial]:
    trials: list[Trial] = []
    score = FreeScore(NgramProposer(), num_tokens, 4, trials.append)
    score.start(prompt)
    for token_ids in commits:
        score.observe(token_ids)
    return trials


def test_a_prediction_is_right_up_to_the_first_other_token() -> None:
    assert scored([1, 2, 3, 4, 5, 1, 2], [3, 9]) == [Trial(3, 1, is_long=False)]


def test_a_prediction_that_comes_true_takes_one_token_more() -> None:
    assert scored([1, 2, 3, 4, 5, 1, 2], [3, 4, 5]) == []
    assert scored([1, 2, 3, 4, 5, 1, 2], [3, 4, 5, 9]) == [Trial(3, 3, is_long=False)]


def test_how_tokens_are_committed_makes_no_difference() -> None:
    tokens = [3, 4, 5, 1, 2, 3, 4, 7, 7, 7, 7, 7]
    one_by_one = scored([1, 2, 3, 4, 5, 1, 2], *[[token] for token in tokens])
    assert one_by_one == scored([1, 2, 3, 4, 5, 1, 2], tokens)
    assert len(one_by_one) > 2


def test_having_nothing_to_say_counts_as_a_pass() -> None:
    assert scored([1, 2, 3], [4, 5]) == [Trial(0, 0, is_long=False)] * 2


def test_a_long_match_is_told_apart() -> None:
    trials = scored([1, 2, 3, 4, 8, 9, 1, 2, 3, 4], [8, 9, 1, 5])
    assert trials == [Trial(3, 3, is_long=True)]
