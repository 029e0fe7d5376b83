"""generation.proto's messages as dataclasses, and back."""

from __future__ import annotations

import pytest

from gateway.completion import Completion, Delta, Timings, Usage
from gateway.messages import completion_from_wire, delta_to_wire, prompt_from_wire
from slipstream.errors import InvalidRequest
from slipstream.request import FinishReason
from slipstream.text.chat_template import ChatMessage
from slipstream.wire.v1 import generation_pb2 as pb

TEXT = pb.Prompt(text="hi")


def test_what_the_caller_left_out_is_the_documented_default() -> None:
    assert completion_from_wire(pb.GenerateRequest(prompt=TEXT)) == Completion(prompt="hi")


def test_what_the_caller_set_to_zero_is_zero() -> None:
    message = pb.GenerateRequest(prompt=TEXT, temperature=0, top_p=0, max_tokens=0, seed=0)
    completion = completion_from_wire(message)
    assert (completion.temperature, completion.top_p, completion.max_tokens, completion.seed) == (0, 0, 0, 0)


def test_every_parameter_of_the_law_arrives() -> None:
    message = pb.GenerateRequest(
        prompt=TEXT,
        repetition_penalty=1.5,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        logit_bias={9: 1.5, 4: -2},
        allowed_token_ids=[4, 9],
        bad_words=[pb.TokenIds(ids=[4, 9]), pb.TokenIds(ids=[9])],
        min_tokens=3,
    )
    assert completion_from_wire(message) == Completion(
        prompt="hi",
        repetition_penalty=1.5,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        logit_bias=((4, -2.0), (9, 1.5)),
        allowed_token_ids=(4, 9),
        bad_words=((4, 9), (9,)),
        min_tokens=3,
    )


def test_every_kind_of_prompt_is_understood() -> None:
    chat = pb.ChatMessages(messages=[pb.ChatMessage(role="user", content="hi")])
    assert prompt_from_wire(TEXT) == "hi"
    assert prompt_from_wire(pb.Prompt(chat=chat)) == (ChatMessage("user", "hi"),)
    assert prompt_from_wire(pb.Prompt(token_ids=pb.TokenIds(ids=[1, 2]))) == (1, 2)
    with pytest.raises(InvalidRequest, match="prompt is missing"):
        prompt_from_wire(pb.Prompt())


def test_usage_and_timings_are_told_only_when_there() -> None:
    running = delta_to_wire("r", Delta(text="a", token_ids=[1], drafted=[True]))
    assert not running.HasField("usage")
    last = Delta(finish_reason=FinishReason.STOP, usage=Usage(seed=2**64 - 1), timings=Timings(total_us=5))
    told = delta_to_wire("r", last)
    assert (told.finish_reason, told.usage.seed, told.timings.total_us) == (FinishReason.STOP, 2**64 - 1, 5)
