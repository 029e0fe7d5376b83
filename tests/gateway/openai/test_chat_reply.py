"""Choices of a chat, whole and in pieces."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.completion import Delta
from gateway.openai.chat_reply import ChatReply
from gateway.openai.tools import NamedFunction, NamedTool
from slipstream.request import FinishReason
from tests.gateway.fakes import TOKENIZER

NAMED = NamedTool(type="function", function=NamedFunction(name="add"))
CALL = '{"name": "add", "arguments": {"a": 1}}'


def streamed(reply: ChatReply, *deltas: Delta) -> list[dict[str, Any]]:
    return [piece for delta in deltas for piece in reply.pieces(0, delta)]


@pytest.mark.parametrize(("reason", "name"), [(FinishReason.STOP, "stop"), (FinishReason.LENGTH, "length")])
def test_a_whole_answer_is_a_message_with_why_it_ended(reason: FinishReason, name: str) -> None:
    choice = ChatReply(TOKENIZER).whole(1, Delta(text="hi", finish_reason=reason))
    assert choice == {
        "index": 1,
        "message": {"role": "assistant", "refusal": None, "content": "hi"},
        "logprobs": None,
        "finish_reason": name,
    }


def test_a_stream_begins_with_the_role_and_ends_with_the_reason() -> None:
    deltas = [Delta(text="a"), Delta(text=""), Delta(text="b", finish_reason=FinishReason.STOP)]
    pieces = streamed(ChatReply(TOKENIZER), *deltas)
    assert [piece["delta"] for piece in pieces] == [
        {"role": "assistant", "content": ""},
        {"content": "a"},
        {"content": "b"},
        {},
    ]
    assert [piece["finish_reason"] for piece in pieces] == [None, None, None, "stop"]


def test_every_choice_begins_for_itself() -> None:
    reply = ChatReply(TOKENIZER)
    first, second = next(reply.pieces(0, Delta(text="a"))), next(reply.pieces(1, Delta(text="b")))
    assert (first["delta"]["role"], second["delta"]["role"], second["index"]) == ("assistant", "assistant", 1)


def test_a_demanded_call_is_told_as_one() -> None:
    choice = ChatReply(TOKENIZER, "required").whole(0, Delta(text=CALL, finish_reason=FinishReason.STOP))
    (call,) = choice["message"]["tool_calls"]
    assert (choice["message"]["content"], choice["finish_reason"]) == (None, "tool_calls")
    assert (call["type"], call["function"]) == ("function", {"name": "add", "arguments": '{"a": 1}'})


def test_a_named_functions_arguments_are_the_output_and_its_end_is_a_stop() -> None:
    choice = ChatReply(TOKENIZER, NAMED).whole(0, Delta(text='{"a": 1}', finish_reason=FinishReason.STOP))
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": 1}'}
    assert choice["finish_reason"] == "stop"


def test_a_call_that_was_cut_is_told_as_the_text_it_is() -> None:
    choice = ChatReply(TOKENIZER, "required").whole(0, Delta(text=CALL[:20], finish_reason=FinishReason.LENGTH))
    assert (choice["message"]["content"], choice["finish_reason"]) == (CALL[:20], "length")
    assert "tool_calls" not in choice["message"]


def test_a_streamed_call_comes_when_it_is_whole() -> None:
    deltas = [Delta(text=CALL[:9]), Delta(text=CALL[9:], finish_reason=FinishReason.STOP)]
    first, last = streamed(ChatReply(TOKENIZER, "required"), *deltas)
    (call,) = last["delta"]["tool_calls"]
    assert first["delta"] == {"role": "assistant", "content": None}
    assert (call["index"], json.loads(call["function"]["arguments"])) == (0, {"a": 1})
    assert last["finish_reason"] == "tool_calls"


def test_what_looks_like_a_call_is_text_if_none_was_demanded() -> None:
    choice = ChatReply(TOKENIZER, "auto").whole(0, Delta(text=CALL, finish_reason=FinishReason.STOP))
    assert (choice["message"]["content"], choice["finish_reason"]) == (CALL, "stop")
