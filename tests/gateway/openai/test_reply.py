"""The JSON around choices."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.completion import Delta, Usage
from gateway.openai.choices import Part
from gateway.openai.completion_reply import CompletionReply
from gateway.openai.reply import Reply, total_usage
from slipstream.request import FinishReason
from tests.gateway.fakes import TOKENIZER

USAGE = {
    "prompt_tokens": 3,
    "completion_tokens": 2,
    "total_tokens": 5,
    "prompt_tokens_details": {"cached_tokens": 1},
}


def last(text: str) -> Delta:
    usage = Usage(prompt_tokens=3, completion_tokens=1, cached_tokens=1)
    return Delta(text=text, token_ids=[1], finish_reason=FinishReason.STOP, usage=usage)


async def two_samples() -> AsyncIterator[Part]:
    yield Part(1, Delta(text="x", token_ids=[1]))
    yield Part(1, last("y"))
    yield Part(0, last("z"))


def reply() -> Reply:
    choices = CompletionReply(TOKENIZER, logprobs=False, echo=False)
    return Reply(choices, request_id="r1", model="tiny", num_samples=2)


async def events(include_usage: bool) -> list[Any]:
    return [event async for event in reply().events(two_samples(), include_usage=include_usage)]


async def test_a_whole_reply_has_all_choices_in_order_and_counts_a_shared_prompt_once() -> None:
    found = await reply().whole(two_samples())
    assert (found["id"], found["object"], found["model"]) == ("cmpl-r1", "text_completion", "tiny")
    assert [choice["text"] for choice in found["choices"]] == ["z", "xy"]
    assert found["usage"] == USAGE


@pytest.mark.parametrize("include_usage", [True, False])
async def test_a_stream_tells_usage_in_an_event_of_its_own_if_asked(include_usage: bool) -> None:
    *told, end = await events(include_usage)
    pieces = [json.loads(event) for event in told]
    assert end == "[DONE]"
    assert [[choice["text"] for choice in piece["choices"]] for piece in pieces[:3]] == [["x"], ["y"], ["z"]]
    assert {piece["id"] for piece in pieces} == {"cmpl-r1"}
    if include_usage:
        assert (pieces[3]["choices"], pieces[3]["usage"]) == ([], USAGE)
        assert all(piece["usage"] is None for piece in pieces[:3])
    else:
        assert len(pieces) == 3
        assert not any("usage" in piece for piece in pieces)


def test_prompts_are_counted_once_and_outputs_each() -> None:
    usage = Usage(prompt_tokens=10, completion_tokens=3, cached_tokens=4)
    total = total_usage([(choice, usage) for choice in range(4)], num_samples=2)
    assert (total["prompt_tokens"], total["completion_tokens"], total["total_tokens"]) == (20, 12, 32)
    assert total["prompt_tokens_details"] == {"cached_tokens": 8}
