"""Sampling settings in JSON become those of a completion."""

from __future__ import annotations

from dataclasses import fields

import pytest

from gateway.completion import Completion
from gateway.json_fields import parse_json
from gateway.sampling_fields import SamplingFields
from slipstream.errors import InvalidRequest
from slipstream.request import Grammar, GrammarKind


def read(body: str) -> dict[str, object]:
    return parse_json(SamplingFields, body).sampling()


def test_only_what_is_given_is_set() -> None:
    assert read('{"temperature": 0, "top_p": null}') == {"temperature": 0.0}


def test_every_setting_is_one_that_a_completion_has() -> None:
    body = (
        '{"temperature": 1, "top_p": 0.5, "top_k": 2, "min_p": 0.1, "max_tokens": 5, "min_tokens": 1, "seed": 7,'
        '"stop": ["x", "y"], "stop_token_ids": [1], "ignore_eos": true, "include_stop_str_in_output": true,'
        '"repetition_penalty": 1.5, "presence_penalty": 1, "frequency_penalty": -1, "logit_bias": {"9": 1, "5": -2},'
        '"allowed_token_ids": [1, 2], "bad_words": [[1, 2], [3]], "grammar": {"kind": "regex", "text": "a+"}, "n": 2}'
    )
    settings = read(body)
    assert set(settings) <= {field.name for field in fields(Completion)}
    assert len(settings) == len(SamplingFields.model_fields)
    completion = Completion(prompt="", **settings)  # type: ignore[arg-type]
    assert completion.logit_bias == ((5, -2.0), (9, 1.0))
    assert completion.bad_words == ((1, 2), (3,))
    assert completion.grammar == Grammar(GrammarKind.REGEX, "a+")
    assert completion.include_stop


def test_one_stop_string_needs_no_list() -> None:
    assert read('{"stop": "x"}') == {"stop": ("x",)}


@pytest.mark.parametrize(("given", "seed"), [(-1, (1 << 64) - 1), (5, 5), ((1 << 64) - 1, (1 << 64) - 1)])
def test_a_seed_of_either_sign_is_one_of_64_bits(given: int, seed: int) -> None:
    assert read(f'{{"seed": {given}}}') == {"seed": seed}


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ('{"seed": 18446744073709551616}', "seed is 18446744073709551616"),
        ('{"stop": 3}', "stop is 3"),
        ('{"stop": [3]}', "stop.0 is 3"),
        ('{"logit_bias": {"a": 1}}', "logit_bias.a"),
        ('{"n": 0}', "n is 0"),
        ('{"grammar": {"kind": "prose", "text": "a"}}', "grammar.kind is 'prose'"),
        ('{"grammar": {"kind": "regex", "text": ""}}', "grammar is 0; it must be 1"),
        ('{"proposer": "ngram"}', "proposer is 'ngram'; there is no such field"),
    ],
)
def test_what_cannot_be_is_refused(body: str, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        read(body)
