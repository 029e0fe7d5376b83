"""Ids are held to the vocabulary, whichever field names them."""

from __future__ import annotations

from typing import Any

import pytest

from slipstream.errors import InvalidRequest
from slipstream.request import SamplingParams
from slipstream.vocabulary_check import check_ids, check_sampling_ids

VOCAB = 300


@pytest.mark.parametrize("token_id", [-1, VOCAB])
def test_an_id_that_is_no_token_is_refused_with_its_field_and_range(token_id: int) -> None:
    with pytest.raises(InvalidRequest, match=rf"prompt holds token id {token_id}; ids must be in 0\.\.{VOCAB - 1}"):
        check_ids("prompt", (0, token_id, VOCAB - 1), VOCAB)


def test_first_and_last_token_and_no_ids_at_all_pass() -> None:
    check_ids("prompt", (0, VOCAB - 1), VOCAB)
    check_ids("prompt", (), VOCAB)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("stop_token_ids", (1, VOCAB)),
        ("logit_bias", ((1, 0.5), (VOCAB, 1.0))),
        ("allowed_token_ids", (1, VOCAB)),
        ("bad_words", ((1, 2), (3, VOCAB))),
    ],
)
def test_every_sampling_parameter_that_names_ids_is_looked_at(field: str, value: Any) -> None:
    sampling = SamplingParams(**{field: value})
    with pytest.raises(InvalidRequest, match=f"{field} holds token id {VOCAB}"):
        check_sampling_ids(sampling, VOCAB)
    check_sampling_ids(sampling, VOCAB + 1)
