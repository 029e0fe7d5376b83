"""From tensors and parameters to a completion."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.kserve.infer_request import InferRequest, read_infer_request
from slipstream.errors import InvalidRequest, UnknownModel
from tests.gateway.kserve.infer_requests import infer_request


def no_region(name: str, offset: int, num_bytes: int) -> bytes:
    raise AssertionError("no region is asked for")


def read(request: Any = None, **values: Any) -> InferRequest:
    return read_infer_request(request or infer_request(**{"text_input": "hi", **values}), no_region)


def with_parameter(name: str, **value: Any) -> Any:
    request = infer_request(text_input="hi")
    for kind, content in value.items():
        setattr(request.parameters[name], kind, content)
    return request


def test_text_and_id_are_those_of_the_completion() -> None:
    found = read()
    assert (found.id, found.completion.prompt, found.completion.model) == ("r1", "hi", "tiny")
    assert (found.completion.request_id, found.stream, found.timeout_seconds) == ("r1", False, None)


def test_sampling_parameters_are_json_with_numbers_or_strings_of_them() -> None:
    settings = {"temperature": "0.5", "max_tokens": "7", "top_k": 3, "stop": "x", "include_stop_str_in_output": True}
    completion = read(sampling_parameters=json.dumps(settings)).completion
    assert (completion.temperature, completion.max_tokens, completion.top_k) == (0.5, 7, 3)
    assert (completion.stop, completion.include_stop) == (("x",), True)
    assert read(sampling_parameters="").completion.max_tokens is None


@pytest.mark.parametrize(
    ("values", "prefix"),
    [
        ({}, "hi"),
        ({"exclude_input_in_output": False}, "hi"),
        ({"exclude_input_in_output": True}, ""),
        ({"stream": True}, ""),
        ({"stream": True, "exclude_input_in_output": True}, ""),
    ],
)
def test_a_whole_answer_begins_with_the_prompt_unless_told_otherwise(values: dict[str, bool], prefix: str) -> None:
    assert read(**values).prefix == prefix


@pytest.mark.parametrize(("microseconds", "seconds"), [(1_500_000, 1.5), (0, None)])
def test_a_timeout_is_in_microseconds(microseconds: int, seconds: float | None) -> None:
    assert read(with_parameter("timeout", int64_param=microseconds)).timeout_seconds == seconds


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"text_input": b"\xff"}, "input 'text_input' is not UTF-8: invalid start byte at byte 0"),
        ({"sampling_parameters": "{"}, "sampling_parameters is no JSON"),
        ({"sampling_parameters": '{"heat": 1}'}, "heat is 1; there is no such field"),
        ({"sampling_parameters": '{"top_p": "much"}'}, "top_p is 'much'"),
        ({"sampling_parameters": '{"n": 2}', "stream": True}, "n is 2; with `stream` it must be 1"),
        ({"stream": True, "exclude_input_in_output": False}, "with `stream` it must be True"),
        ({"max_tokens": "3"}, "input 'max_tokens' is not known; inputs are text_input, stream"),
    ],
)
def test_what_cannot_be_asked_is_named(values: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        read(**values)


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (with_parameter("priority", uint64_param=1), "parameter 'priority' is not known; known are timeout"),
        (with_parameter("sequence_id", int64_param=1), "parameter 'sequence_id' is not known"),
        (with_parameter("timeout", int64_param=-1), "timeout is -1"),
    ],
)
def test_parameters_that_would_mean_nothing_are_refused(request_: Any, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        read(request_)


def test_only_the_text_can_be_asked_for_and_only_in_the_response() -> None:
    request = infer_request(text_input="hi")
    output = request.outputs.add(name="text_output")
    assert read(request).id == "r1"
    output.parameters["shared_memory_region"].string_param = "mine"
    with pytest.raises(InvalidRequest, match="output parameter 'shared_memory_region' is not served"):
        read(request)
    output.name = "logits"
    with pytest.raises(InvalidRequest, match="output 'logits' is not known; it must be text_output"):
        read(request)


def test_there_is_one_version() -> None:
    request = infer_request(text_input="hi")
    request.model_version = "1"
    assert read(request).id == "r1"
    request.model_version = "2"
    with pytest.raises(UnknownModel, match="model version '2' is not served"):
        read(request)
