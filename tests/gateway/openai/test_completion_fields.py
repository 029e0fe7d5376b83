"""The body of /v1/completions becomes completions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.completion import Completion
from gateway.json_fields import parse_json
from gateway.openai.completion_fields import DEFAULT_MAX_TOKENS, CompletionFields
from slipstream.errors import InvalidRequest


def read(**fields: Any) -> tuple[Completion, ...]:
    return parse_json(CompletionFields, json.dumps({"model": "m", "prompt": "a"} | fields)).read().completions


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("hi", ["hi"]),
        ([5, 6], [(5, 6)]),
        (["a", "b"], ["a", "b"]),
        ([[5], [6, 7]], [(5,), (6, 7)]),
        (["a", [5]], ["a", (5,)]),
        ("", [""]),
    ],
)
def test_one_prompt_or_several_of_text_or_ids(prompt: Any, prompts: list[Any]) -> None:
    assert [completion.prompt for completion in read(prompt=prompt)] == prompts


@pytest.mark.parametrize("prompt", [None, 3, [], [True], [1.5], [["a"]], {"text": "a"}, ["a"] * 129])
def test_what_is_no_prompt_is_refused(prompt: Any) -> None:
    with pytest.raises(InvalidRequest, match=r"prompt is .*must be a text, a list of token ids, or a list of 1..128"):
        read(prompt=prompt)


def test_the_output_is_short_unless_told_otherwise() -> None:
    assert read()[0].max_tokens == DEFAULT_MAX_TOKENS
    assert read(max_tokens=500)[0].max_tokens == 500


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({}, (False, 0, False)),
        ({"logprobs": 0}, (True, 0, False)),
        ({"logprobs": 3}, (True, 3, False)),
        ({"logprobs": 3, "echo": True}, (True, 3, True)),
        ({"echo": True}, (False, 0, False)),
    ],
)
def test_log_probabilities_of_the_prompt_are_told_with_its_echo(fields: dict[str, Any], told: tuple[Any, ...]) -> None:
    (completion,) = read(**fields)
    assert (completion.logprobs, completion.num_top_logprobs, completion.prompt_logprobs) == told
    assert completion.echo == fields.get("echo", False)


def test_every_prompt_gets_the_same_settings() -> None:
    first, second = read(prompt=["a", "b"], temperature=0.5, n=2)
    assert (first.temperature, first.n) == (second.temperature, second.n) == (0.5, 2)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"suffix": "end"}, "suffix is 'end'"),
        ({"logprobs": True}, "logprobs is True"),
        ({"logprobs": -1}, "logprobs is -1"),
        ({"logprobs": 21}, "logprobs is 21"),
        ({"messages": []}, "messages is .*no such field"),
        ({"best_of": 3}, "best_of is 3; it must be 1, n"),
        ({"n": 2, "best_of": 3}, "best_of is 3; it must be 2, n"),
    ],
)
def test_what_is_not_served_is_refused_by_name(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        read(**fields)
