"""Messages as OpenAI's clients write them become those that templates read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.json_fields import parse_json
from gateway.openai.chat_messages import MessageFields
from slipstream.errors import InvalidRequest
from slipstream.text.chat_template import ChatMessage


def read(**fields: Any) -> ChatMessage:
    return parse_json(MessageFields, json.dumps(fields)).message()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("hi", "hi"),
        (None, ""),
        ([], ""),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb"),
    ],
)
def test_content_is_text_or_parts_of_text(content: Any, text: str) -> None:
    assert read(role="user", content=content) == ChatMessage("user", text)


def test_templates_know_the_developer_as_the_system() -> None:
    assert read(role="developer", content="a").role == "system"


def test_a_call_and_its_result_reach_the_template_with_arguments_as_values() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    asked = read(role="assistant", content=None, tool_calls=[call])
    assert asked.details["tool_calls"] == [call | {"function": {"name": "add", "arguments": {"a": 1}}}]
    answered = read(role="tool", content="42", tool_call_id="c1", name="add")
    assert answered.details == {"tool_call_id": "c1", "name": "add"}


def test_arguments_that_are_no_json_stay_as_they_are() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{"}}
    assert read(role="assistant", tool_calls=[call]).details["tool_calls"][0]["function"]["arguments"] == "{"


def test_an_answer_may_be_sent_back_as_it_came() -> None:
    came: dict[str, Any] = {
        "role": "assistant",
        "content": "a",
        "refusal": None,
        "annotations": [],
        "audio": None,
        "tool_calls": None,
    }
    assert read(**came, function_call=None) == ChatMessage("assistant", "a")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"content": "a"}, "role is missing"),
        ({"role": "robot", "content": "a"}, "role is 'robot'; it must be 'system', "),
        ({"role": "user", "content": 3}, "content is 3"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {}}]}, "content.0.type is 'image_url'"),
        ({"role": "user", "content": ["a"]}, "content.0 is 'a'"),
        ({"role": "user", "content": "a", "mood": "good"}, "mood is 'good'; there is no such field"),
    ],
)
def test_what_no_template_can_read_is_refused(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        read(**fields)
