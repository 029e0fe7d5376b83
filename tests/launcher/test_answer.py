"""Samples that come mixed, parts of a prompt, and log probabilities, put together again."""

from __future__ import annotations

import pytest

from launcher.answer import Answer, Score, scores
from slipstream.wire.v1 import generation_pb2 as pb

MESSAGES = (
    pb.GenerateResponse(prompt=pb.PromptEcho(token_ids=[7, 8], text="On", logprobs=pb.Logprobs(logprobs=[-2.0]))),
    pb.GenerateResponse(prompt=pb.PromptEcho(token_ids=[9], text="ce", logprobs=pb.Logprobs(logprobs=[-3.0]))),
    pb.GenerateResponse(index=1, text="a", token_ids=[1], drafted=[False], text_lengths=[1]),
    pb.GenerateResponse(
        index=0,
        text="bc",
        token_ids=[2, 3],
        drafted=[True, False],
        text_lengths=[1, 0],
        logprobs=pb.Logprobs(logprobs=[-0.5, -1.5], top_token_ids=[2, 4, 5, 3], top_logprobs=[-0.5, -1, -1, -1.5]),
    ),
)


def test_each_sample_and_the_prompt_are_put_together() -> None:
    answer = Answer()
    assert list(answer.noting(MESSAGES)) == list(MESSAGES)
    assert (answer.prompt_ids, answer.prompt_text) == ([7, 8, 9], "Once")
    assert {index: one.text for index, one in answer.samples.items()} == {0: "bc", 1: "a"}
    assert answer.samples[0].texts == ["b", "c"], "what the end let go is the last token's"


def test_every_token_has_its_score_and_a_prompts_first_has_none() -> None:
    answer = Answer.of(MESSAGES)
    of_prompt = list(scores(answer.prompt_ids, answer.prompt_logprobs))
    assert of_prompt == [Score(7, None, ()), Score(8, -2.0, ()), Score(9, -3.0, ())]
    first, second = scores(answer.samples[0].token_ids, answer.samples[0].logprobs)
    assert first == Score(2, pytest.approx(-0.5), ((2, -0.5), (4, -1.0)))
    assert second.as_fields() == {
        "token_id": 3,
        "logprob": -1.5,
        "top": [{"token_id": 5, "logprob": -1.0}, {"token_id": 3, "logprob": -1.5}],
    }
    assert list(scores(answer.samples[1].token_ids, answer.samples[1].logprobs)) == []
