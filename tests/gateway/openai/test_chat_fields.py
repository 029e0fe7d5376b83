"""The body of /v1/chat/completions becomes a completion."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.completion import Completion
from gateway.json_fields import parse_json
from gateway.openai.chat_fields import ChatFields
from slipstream.errors import InvalidRequest
from slipstream.request import GrammarKind
from slipstream.text.chat_template import ChatMessage

HI = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
CALL = {"type": "function", "function": {"name": "add"}}


def read(**fields: Any) -> Completion:
    (completion,) = parse_json(ChatFields, json.dumps({"model": "m", "messages": HI} | fields)).read().completions
    return completion


def test_messages_are_the_prompt_and_the_length_is_left_to_the_gateway() -> None:
    completion = read()
    assert completion.prompt == (ChatMessage("user", "hi"),)
    assert (completion.model, completion.max_tokens, completion.grammar) == ("m", None, None)


def test_the_length_has_two_names() -> None:
    assert read(max_completion_tokens=5).max_tokens == read(max_tokens=5).max_tokens == 5
    assert read(max_completion_tokens=5, max_tokens=5).max_tokens == 5


def test_log_probabilities_are_told_if_asked_for() -> None:
    completion = read(logprobs=True, top_logprobs=3)
    assert (completion.logprobs, completion.num_top_logprobs) == (True, 3)
    assert not read(logprobs=False).logprobs


def test_tools_are_offered_as_written_unless_none_may_be_called() -> None:
    assert read(tools=[TOOL]).tools == (TOOL,)
    assert read(tools=[TOOL], tool_choice="auto", parallel_tool_calls=True).tools == (TOOL,)
    assert read(tools=[TOOL], tool_choice="none").tools == ()


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "json_object"}},
        {"tools": [TOOL], "tool_choice": "required"},
        {"tools": [TOOL], "tool_choice": CALL},
        {"grammar": {"kind": "json_schema", "text": "{}"}},
    ],
)
def test_the_form_of_the_answer_is_a_grammar(fields: dict[str, Any]) -> None:
    grammar = read(**fields).grammar
    assert grammar is not None
    assert grammar.kind is GrammarKind.JSON_SCHEMA


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"messages": "hi"}, "messages is 'hi'"),
        ({"max_tokens": 5, "max_completion_tokens": 6}, "max_tokens and max_completion_tokens differ"),
        ({"top_logprobs": 3}, "top_logprobs is 3; it needs `logprobs` to be true"),
        ({"logprobs": 3}, "logprobs is 3"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs is 21"),
        ({"modalities": ["text", "audio"]}, "modalities.1 is 'audio'"),
        ({"functions": []}, "functions is .*no such field"),
        ({"reasoning_effort": "low"}, "reasoning_effort is 'low'; there is no such field"),
        ({"tools": [{"type": "web_search"}]}, "tools.0.type is 'web_search'"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools.0.function.name is 'a b'"),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        (
            {"response_format": {"type": "json_object"}, "grammar": {"kind": "regex", "text": "a"}},
            "more than one of response_format, tool_choice and grammar",
        ),
    ],
)
def test_what_is_not_served_is_refused_by_name(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        read(**fields)
