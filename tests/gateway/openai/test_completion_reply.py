"""Choices of a plain completion, whole and in pieces."""

from __future__ import annotations

import numpy as np

from gateway.completion import Delta, PromptPart
from gateway.openai.completion_reply import CompletionReply
from slipstream.exchange import TokenLogprobs
from slipstream.request import FinishReason
from tests.gateway.fakes import TOKENIZER

A, B = TOKENIZER.encode("ab")


def told(*logprobs: float) -> TokenLogprobs:
    none = np.empty((len(logprobs), 0))
    return TokenLogprobs(np.array(logprobs, np.float32), none.astype(np.int32), none.astype(np.float32))


def test_a_whole_choice_is_text_and_why_it_ended() -> None:
    reply = CompletionReply(TOKENIZER, logprobs=False, echo=False)
    choice = reply.whole(2, Delta(text="b", token_ids=[B], finish_reason=FinishReason.LENGTH))
    assert choice == {"index": 2, "text": "b", "logprobs": None, "finish_reason": "length"}


def test_an_echo_stands_before_the_output_with_its_log_probabilities() -> None:
    reply = CompletionReply(TOKENIZER, logprobs=True, echo=True)
    prompt = PromptPart(token_ids=[A, B], text="ab", logprobs=told(-1.0))
    delta = Delta(text="a", token_ids=[A], logprobs=told(-2.0), prompt=prompt, finish_reason=FinishReason.STOP)
    choice = reply.whole(0, delta)
    assert choice["text"] == "aba"
    assert choice["logprobs"]["tokens"] == ["a", "b", "a"]
    assert choice["logprobs"]["token_logprobs"] == [None, -1.0, -2.0]
    assert choice["logprobs"]["text_offset"] == [0, 1, 2]


def test_pieces_put_together_are_the_whole() -> None:
    prompt = PromptPart(token_ids=[A], text="a")
    reply = CompletionReply(TOKENIZER, logprobs=True, echo=True)
    deltas = [
        Delta(prompt=prompt),
        Delta(text="b", token_ids=[B], logprobs=told(-1.0)),
        Delta(text="a", token_ids=[A], logprobs=told(-2.0), finish_reason=FinishReason.STOP),
    ]
    pieces = [piece for delta in deltas for piece in reply.pieces(0, delta)]
    assert "".join(piece["text"] for piece in pieces) == "aba"
    assert [piece["finish_reason"] for piece in pieces] == [None, None, "stop"]
    assert [offset for piece in pieces for offset in piece["logprobs"]["text_offset"]] == [0, 1, 2]
