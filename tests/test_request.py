"""What may be asked of a sequence: ranges are named, and what is in range is taken."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from slipstream.errors import InvalidRequest
from slipstream.request import (
    MAX_ALLOWED_TOKEN_IDS,
    MAX_BAD_WORD_TOKENS,
    MAX_BAD_WORDS,
    MAX_BIASED_TOKENS,
    MAX_GRAMMAR_CHARS,
    MAX_STOP_STRING_CHARS,
    MAX_STOP_STRINGS,
    MAX_TOP_K,
    Grammar,
    GrammarKind,
    SamplingParams,
    SequenceRequest,
)


@pytest.mark.parametrize(
    "field, value",
    [
        ("temperature", -0.5),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("top_k", -1),
        ("top_k", MAX_TOP_K + 1),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_p", math.nan),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("min_p", math.nan),
        ("max_tokens", 0),
        ("min_tokens", -1),
        ("min_tokens", 17),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", math.nan),
        ("repetition_penalty", 1e9),
        ("presence_penalty", 2.5),
        ("presence_penalty", math.nan),
        ("frequency_penalty", -2.5),
        ("frequency_penalty", math.inf),
        ("num_top_logprobs", 21),
    ],
)
def test_a_value_out_of_range_is_named_with_its_range(field: str, value: Any) -> None:
    with pytest.raises(InvalidRequest, match=f"{field} is {value!r}; it must be "):
        SamplingParams(**{field: value})


@pytest.mark.parametrize("stop", [("",), ("x" * (MAX_STOP_STRING_CHARS + 1),), ("x",) * (MAX_STOP_STRINGS + 1)])
def test_stop_strings_are_neither_empty_nor_too_long_nor_too_many(stop: tuple[str, ...]) -> None:
    with pytest.raises(InvalidRequest, match="stop is "):
        SamplingParams(stop_strings=stop)


@pytest.mark.parametrize(
    "field, value, said",
    [
        ("logit_bias", ((3, 101.0),), "logit_bias of token 3 is 101.0"),
        ("logit_bias", ((3, math.nan),), "logit_bias of token 3 is nan"),
        ("logit_bias", ((3, 1.0), (3, 2.0)), "one value per token id"),
        ("logit_bias", ((-1, 1.0),), "token ids >= 0"),
        ("logit_bias", tuple((i, 1.0) for i in range(MAX_BIASED_TOKENS + 1)), "logit_bias is 1025"),
        ("allowed_token_ids", (4, -2), "allowed_token_ids is -2"),
        ("allowed_token_ids", (4,) * (MAX_ALLOWED_TOKEN_IDS + 1), "allowed_token_ids is 65537"),
        ("bad_words", ((),), "words of 1..32 tokens"),
        ("bad_words", ((1,) * (MAX_BAD_WORD_TOKENS + 1),), "words of 1..32 tokens"),
        ("bad_words", ((1, -1),), "words of token ids >= 0"),
        ("bad_words", ((1,),) * (MAX_BAD_WORDS + 1), "bad_words is 257"),
    ],
)
def test_lists_of_tokens_are_bounded_in_length_and_value(field: str, value: Any, said: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(said)):
        SamplingParams(**{field: value})


@pytest.mark.parametrize("num_chars", [0, MAX_GRAMMAR_CHARS + 1])
def test_a_grammar_is_neither_empty_nor_too_long(num_chars: int) -> None:
    with pytest.raises(InvalidRequest, match=f"grammar is {num_chars}; it must be 1..{MAX_GRAMMAR_CHARS} characters"):
        Grammar(GrammarKind.REGEX, "x" * num_chars)


@pytest.mark.parametrize(
    "edge",
    [
        {"temperature": 0.0},
        {"top_p": 1.0},
        {"min_p": 1.0},
        {"top_k": MAX_TOP_K},
        {"min_tokens": 16},
        {"repetition_penalty": 0.01},
        {"repetition_penalty": 0.009999999776482582},  # 0.01 as it comes over the wire
        {"presence_penalty": -2.0},
    ],
)
def test_the_ends_of_a_range_belong_to_it(edge: dict[str, Any]) -> None:
    SamplingParams(**edge)


def test_temperature_zero_and_nothing_else_is_greedy() -> None:
    assert SamplingParams(temperature=0.0).greedy
    assert not SamplingParams(temperature=1e-30).greedy


@pytest.mark.parametrize("token_ids, num_prompt_tokens", [((), 0), ((1, 2), 0), ((1, 2), 3)])
def test_the_prompt_lies_within_the_committed_tokens(token_ids: tuple[int, ...], num_prompt_tokens: int) -> None:
    with pytest.raises(InvalidRequest):
        SequenceRequest(
            sequence_id=1, token_ids=token_ids, num_prompt_tokens=num_prompt_tokens, sampling=SamplingParams()
        )


def test_what_was_committed_past_the_prompt_is_output() -> None:
    request = SequenceRequest(sequence_id=1, token_ids=(1, 2, 3), num_prompt_tokens=2, sampling=SamplingParams())
    assert request.num_output_tokens == 1
