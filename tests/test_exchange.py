"""Log probabilities of tokens that follow one another can be cut, narrowed and joined; laws name their tokens."""

from __future__ import annotations

import numpy as np

from slipstream.exchange import LAW_TOTAL, SparseLaw, TokenLogprobs


def logprobs(first: int, count: int, num_top: int = 3) -> TokenLogprobs:
    tops = np.arange(num_top * first, num_top * (first + count)).reshape(count, num_top)
    return TokenLogprobs(
        np.arange(first, first + count, dtype=np.float32), tops.astype(np.int32), -tops * np.float32(1)
    )


def parts(one: TokenLogprobs) -> list[object]:
    return [one.logprobs.tolist(), one.top_token_ids.tolist(), one.top_logprobs.tolist()]


def test_what_was_cut_apart_is_joined_to_the_same() -> None:
    whole = logprobs(0, 5)
    assert parts(whole[:2] + whole[2:]) == parts(whole)
    assert (len(whole[:2]), len(whole[2:]), len(whole[5:])) == (2, 3, 0)


def test_fewer_likeliest_tokens_are_the_first_of_each_token() -> None:
    narrow = logprobs(0, 2).narrowed(1)
    assert narrow.top_token_ids.tolist() == [[0], [3]]
    assert narrow.top_logprobs.tolist() == [[0.0], [-3.0]]
    assert narrow.logprobs.tolist() == [0.0, 1.0]


def test_a_token_that_a_law_does_not_name_has_probability_zero() -> None:
    law = SparseLaw(np.array([9, 4], np.int32), np.array([LAW_TOTAL // 4, 3 * LAW_TOTAL // 4], np.uint16))
    assert [law.probability(token_id) for token_id in (9, 4, 5)] == [0.25, 0.75, 0.0]
