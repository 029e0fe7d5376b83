"""`slipstream generate`: what it prints."""

from __future__ import annotations

import io
import json
from typing import cast

import pytest
from rich.console import Console

from launcher.answer import Answer
from launcher.client import Client
from launcher.generate import as_json_text, run_generate, summary
from slipstream.wire.v1 import exchange_pb2
from slipstream.wire.v1 import generation_pb2 as pb

PROMPT = pb.GenerateResponse(
    request_id="r", prompt=pb.PromptEcho(token_ids=[8, 9], text="Say [b]", logprobs=pb.Logprobs(logprobs=[-2.5]))
)


def last(index: int = 0, **fields: object) -> pb.GenerateResponse:
    return pb.GenerateResponse(
        request_id="r",
        index=index,
        text="hé",
        token_ids=[4, 5],
        drafted=[True, False],
        text_lengths=[1, 1],
        finish_reason=exchange_pb2.FINISH_REASON_LENGTH,
        usage=pb.Usage(completion_tokens=2, accepted_tokens=1, num_drafts=1, num_passes=1, seed=1 << 63),
        timings=pb.Timings(total_us=600_000, first_token_us=100_000),
        **fields,  # type: ignore[arg-type]
    )


SCORED = last(logprobs=pb.Logprobs(logprobs=[-0.25, -1.5], top_token_ids=[4, 6], top_logprobs=[-0.25, -0.75]))


class OneAnswer:
    def __init__(self, *messages: pb.GenerateResponse) -> None:
        self._messages = messages

    def generate(self, request: pb.GenerateRequest, deadline_seconds: float) -> tuple[pb.GenerateResponse, ...]:
        return self._messages


def printed(*messages: pb.GenerateResponse, n: int = 1) -> str:
    console = Console(file=io.StringIO(), width=100)
    run_generate(console, cast(Client, OneAnswer(*messages)), pb.GenerateRequest(n=n), 1.0, as_json=False)
    return cast(io.StringIO, console.file).getvalue()


def test_json_holds_the_whole_answer_with_numbers_as_numbers() -> None:
    answer = json.loads(as_json_text(Answer.of([last()])))
    assert (answer["text"], answer["token_ids"], answer["drafted"]) == ("hé", [4, 5], [True, False])
    assert answer["finish_reason"] == "length"
    assert answer["usage"]["seed"] == 1 << 63
    assert answer["timings"]["wire_us"] == 0
    assert not {"prompt", "logprobs", "samples"} & set(answer), "what was not asked for"


def test_json_holds_prompt_and_log_probabilities_beside_their_tokens() -> None:
    answer = json.loads(as_json_text(Answer.of([PROMPT, SCORED])))
    assert answer["prompt"]["text"] == "Say [b]"
    assert [score["logprob"] for score in answer["prompt"]["logprobs"]] == [None, -2.5]
    assert answer["logprobs"][1] == {"token_id": 5, "logprob": -1.5, "top": [{"token_id": 6, "logprob": -0.75}]}


def test_json_holds_several_samples_in_a_list() -> None:
    answer = json.loads(as_json_text(Answer.of([last(1), last(0), last(2)])))
    assert [sample["text"] for sample in answer["samples"]] == ["hé"] * 3
    assert "text" not in answer


def test_the_summary_counts_drafted_tokens_and_speed_over_all_samples() -> None:
    one, other = Answer.of([last(0), last(1)]).samples.values()
    assert summary(one) == "2 tokens, 1 of them drafted, in 1 passes; 2.0 tok/s; length"
    assert summary(one, other) == "4 tokens, 2 of them drafted, in 2 passes; 2.0 tok/s; length"


def test_people_read_the_prompt_the_text_and_a_row_for_each_token() -> None:
    text = printed(PROMPT, SCORED)
    assert text.startswith("Say [b]hé\n")
    rows = [line.split() for line in text.splitlines()]
    assert ["9", "-2.5000"] in rows
    assert ["4", "-0.2500", "h", "4", "-0.2500"] in rows
    assert ["5", "-1.5000", r"\xe9", "6", "-0.7500"] in rows


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_people_read_one_sample_after_the_other(order: tuple[int, int]) -> None:
    text = printed(PROMPT, *(last(index) for index in order), n=2)
    assert text.index("Say [b]") < text.index("sample 0, length") < text.index("sample 1, length")
    assert "4 tokens, 2 of them drafted" in text
