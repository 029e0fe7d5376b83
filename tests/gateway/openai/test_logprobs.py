"""Log probabilities in OpenAI's two forms."""

from __future__ import annotations

import numpy as np

from gateway.openai.logprobs import LEAST, CompletionLogprobs, chat_logprobs, token_text
from slipstream.exchange import TokenLogprobs
from tests.gateway.fakes import TOKENIZER

A, B, HEAD, TAIL = TOKENIZER.encode("ab") + TOKENIZER.encode("é")
END = 256


def told(logprobs: list[float], tops: list[list[tuple[int, float]]]) -> TokenLogprobs:
    num_top = len(tops[0])
    return TokenLogprobs(
        np.array(logprobs, np.float32),
        np.array([[token_id for token_id, _ in row] for row in tops], np.int32).reshape(len(tops), num_top),
        np.array([[value for _, value in row] for row in tops], np.float32).reshape(len(tops), num_top),
    )


def test_a_token_is_told_by_its_text_a_special_one_by_its_name() -> None:
    assert [token_text(TOKENIZER, one) for one in (A, HEAD, END)] == ["a", "\ufffd", "<|end|>"]


def test_a_chat_tells_each_token_with_its_bytes_and_the_likeliest() -> None:
    found = chat_logprobs(TOKENIZER, [HEAD], told([-2.0], [[(A, -0.5), (END, -1.0)]]))
    assert found is not None
    (entry,) = found["content"]
    assert (entry["token"], entry["logprob"], entry["bytes"]) == ("\ufffd", -2.0, list("é".encode()[:1]))
    assert entry["top_logprobs"] == [
        {"token": "a", "logprob": -0.5, "bytes": [97]},
        {"token": "<|end|>", "logprob": -1.0, "bytes": list(b"<|end|>")},
    ]


def test_without_log_probabilities_nothing_is_told() -> None:
    assert chat_logprobs(TOKENIZER, [A], None) is None


def test_no_probability_at_all_is_a_number_that_json_has() -> None:
    found = chat_logprobs(TOKENIZER, [A], told([-np.inf], [[]]))
    assert found is not None
    assert found["content"][0]["logprob"] == LEAST


def test_offsets_go_on_from_part_to_part() -> None:
    logprobs = CompletionLogprobs(TOKENIZER)
    first = logprobs.add([A, B], told([-1.0, -2.0], [[(A, -1.0)], [(A, -0.5)]]))
    second = logprobs.add([B], told([-3.0], [[(B, -3.0)]]))
    assert (first["tokens"], first["text_offset"], second["text_offset"]) == (["a", "b"], [0, 1], [2])


def test_the_token_taken_is_among_the_likeliest() -> None:
    found = CompletionLogprobs(TOKENIZER).add([B], told([-3.0], [[(A, -0.5)]]))
    assert found["top_logprobs"] == [{"a": -0.5, "b": -3.0}]


def test_of_two_tokens_that_read_alike_the_likelier_is_told() -> None:
    found = CompletionLogprobs(TOKENIZER).add([TAIL], told([-3.0], [[(HEAD, -0.5)]]))
    assert found["top_logprobs"] == [{"\ufffd": -0.5}]


def test_the_first_token_of_a_prompt_has_none() -> None:
    found = CompletionLogprobs(TOKENIZER).add([A, B], told([-1.5], [[(B, -1.5)]]))
    assert (found["token_logprobs"], found["top_logprobs"]) == ([None, -1.5], [None, {"b": -1.5}])
