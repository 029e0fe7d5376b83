"""Choices of a chat, whole and in pieces."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import numpy as np
import pytest

from gateway.completion import Delta
from gateway.openai.answers import make_reader
from gateway.openai.chat_reply import ChatReply
from gateway.openai.tools import Choice, Function, NamedFunction, NamedTool, Tool
from slipstream.exchange import TokenLogprobs
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


def calls_by(choice: Choice, *, marked: bool = False) -> ChatReply:
    tool = Tool(type="function", function=Function(name="add"))
    return ChatReply(TOKENIZER, partial(make_reader, [tool], choice, marked=marked))


def test_a_call_is_told_as_one_and_is_why_the_answer_ends() -> None:
    choice = calls_by("required").whole(0, Delta(text=CALL, finish_reason=FinishReason.STOP))
    (call,) = choice["message"]["tool_calls"]
    assert (choice["message"]["content"], choice["finish_reason"]) == (None, "tool_calls")
    assert (call["type"], call["function"]) == ("function", {"name": "add", "arguments": '{"a": 1}'})


def test_where_the_function_was_named_the_end_is_a_stop() -> None:
    choice = calls_by(NAMED).whole(0, Delta(text='{"a": 1}', finish_reason=FinishReason.STOP))
    assert choice["message"]["tool_calls"][0]["function"] == {"name": "add", "arguments": '{"a": 1}'}
    assert choice["finish_reason"] == "stop"


def test_a_call_that_was_cut_is_told_as_the_text_it_is() -> None:
    choice = calls_by("required").whole(0, Delta(text=CALL[:20], finish_reason=FinishReason.LENGTH))
    assert (choice["message"]["content"], choice["finish_reason"]) == (CALL[:20], "length")
    assert "tool_calls" not in choice["message"]


def test_text_around_a_call_is_told_beside_it() -> None:
    text = f"I add.\n<tool_call>{CALL}</tool_call>"
    choice = calls_by("auto", marked=True).whole(0, Delta(text=text, finish_reason=FinishReason.STOP))
    assert (choice["message"]["content"], choice["finish_reason"]) == ("I add.", "tool_calls")
    assert len(choice["message"]["tool_calls"]) == 1


def test_streamed_calls_are_numbered_and_come_when_they_are_whole() -> None:
    text = f"so<tool_call>{CALL}</tool_call><tool_call>{CALL}</tool_call>"
    deltas = [Delta(text=text[:20]), Delta(text=text[20:], finish_reason=FinishReason.STOP)]
    first, content, one, two, last = streamed(calls_by("auto", marked=True), *deltas)
    assert (first["delta"]["role"], content["delta"]) == ("assistant", {"content": "so"})
    calls = [piece["delta"]["tool_calls"][0] for piece in (one, two)]
    assert [call["index"] for call in calls] == [0, 1]
    assert [json.loads(call["function"]["arguments"]) for call in calls] == [{"a": 1}] * 2
    assert calls[0]["id"] != calls[1]["id"]
    assert (last["delta"], last["finish_reason"]) == ({}, "tool_calls")


def test_what_looks_like_a_call_is_text_if_none_was_offered() -> None:
    choice = ChatReply(TOKENIZER).whole(0, Delta(text=CALL, finish_reason=FinishReason.STOP))
    assert (choice["message"]["content"], choice["finish_reason"]) == (CALL, "stop")


def test_log_probabilities_come_with_the_first_piece_that_has_a_place_for_them() -> None:
    none = np.empty((1, 0))
    told = TokenLogprobs(np.array([-1.0], np.float32), none.astype(np.int32), none.astype(np.float32))
    held = Delta(text="", token_ids=[1], logprobs=told)
    pieces = streamed(ChatReply(TOKENIZER), held, Delta(text="a", token_ids=[1], logprobs=told))
    assert [piece["logprobs"] is None for piece in pieces] == [True, False, False]
