"""Sets of tokens as packed bits."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream.token_bits import num_words, packed


@pytest.mark.parametrize(("vocab_size", "expected"), [(1, 1), (32, 1), (33, 2), (257, 9)])
def test_a_set_has_a_bit_for_every_token(vocab_size: int, expected: int) -> None:
    assert num_words(vocab_size) == expected
    assert packed((), vocab_size).tolist() == [0] * expected


def test_each_token_has_the_bit_that_the_layout_says() -> None:
    token_ids = [0, 5, 31, 32, 63, 64]
    words = packed(token_ids, 70)
    assert words.dtype == np.int32
    assert [token_id for token_id in range(96) if words[token_id >> 5] >> (token_id & 31) & 1] == token_ids


def test_a_token_outside_the_vocabulary_is_in_no_set() -> None:
    assert packed((3, 70, 95), 70).tolist() == packed((3,), 70).tolist()
