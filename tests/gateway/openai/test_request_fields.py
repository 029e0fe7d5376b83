"""What chats and plain completions share."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.completion import Completion
from gateway.json_fields import parse_json
from gateway.openai.request_fields import RequestFields
from slipstream.errors import InvalidRequest


def read(**fields: Any) -> RequestFields:
    return parse_json(RequestFields, json.dumps({"model": "m"} | fields))


@pytest.mark.parametrize(
    ("fields", "stream", "usage"),
    [
        ({}, False, False),
        ({"stream": False}, False, False),
        ({"stream": True}, True, False),
        ({"stream": True, "stream_options": {"include_usage": True}}, True, True),
        ({"stream": True, "stream_options": {"include_obfuscation": False}}, True, False),
    ],
)
def test_whether_to_stream_and_to_tell_usage(fields: dict[str, Any], stream: bool, usage: bool) -> None:
    asked = read(**fields).asked(Completion(prompt="a"))
    assert (asked.stream, asked.include_usage) == (stream, usage)


def test_what_changes_no_answer_is_taken_and_left_out() -> None:
    harmless = {"user": "u", "metadata": {"a": "b"}, "safety_identifier": "s", "service_tier": "auto", "store": False}
    assert read(**harmless).sampling() == {}


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"model": None}, "model is None"),
        ({"stream": "yes"}, "stream is 'yes'"),
        ({"stream_options": {"include_usage": True}}, "stream_options is .*needs `stream` to be true"),
        (
            {"stream": True, "stream_options": {"include_obfuscation": True}},
            "stream_options.include_obfuscation is True",
        ),
        ({"store": True}, "store is True; it must be False"),
        ({"service_tier": "flex"}, "service_tier is 'flex'"),
        ({"prediction": {"type": "content"}}, "prediction is .*no such field"),
        ({"draft_model": "small"}, "draft_model is 'small'; there is no such field"),
        ({"proposers": ["ngram"]}, "proposers is .*no such field"),
    ],
)
def test_what_is_not_served_is_refused_by_name(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        read(**fields)
