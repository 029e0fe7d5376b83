"""`slipstream generate`: what it asks for and what it prints."""

from __future__ import annotations

import json

import pytest

from launcher.client import Completion
from launcher.generate import GenerateOptions, as_json_text, make_request, summary
from slipstream.wire.v1 import exchange_pb2
from slipstream.wire.v1 import generation_pb2 as pb


def make_completion() -> Completion:
    completion = Completion()
    completion.add(
        pb.GenerateResponse(
            request_id="r",
            text="hé",
            token_ids=[4, 5],
            drafted=[True, False],
            finish_reason=exchange_pb2.FINISH_REASON_LENGTH,
            usage=pb.Usage(completion_tokens=2, accepted_tokens=1, num_drafts=1, num_passes=1, seed=1 << 63),
            timings=pb.Timings(total_us=600_000, first_token_us=100_000),
        )
    )
    return completion


def test_a_plain_prompt_takes_no_template_and_an_unset_seed_is_not_sent() -> None:
    request = make_request(GenerateOptions(prompt="Once"))
    assert request.prompt.text == "Once"
    assert not request.HasField("seed")


def test_greedy_is_said_and_not_left_to_the_default() -> None:
    request = make_request(GenerateOptions(prompt="Once", temperature=0.0, seed=0))
    assert request.HasField("temperature")
    assert request.HasField("seed")


def test_a_chat_goes_through_the_template() -> None:
    request = make_request(GenerateOptions(prompt="Hi", chat=True, system="Be brief."))
    assert [message.role for message in request.prompt.chat.messages] == ["system", "user"]


def test_a_number_that_the_protocol_cannot_say_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="-1"):
        make_request(GenerateOptions(prompt="Once", top_k=-1))


def test_json_holds_the_whole_answer_with_numbers_as_numbers() -> None:
    answer = json.loads(as_json_text(make_completion()))
    assert (answer["text"], answer["token_ids"], answer["drafted"]) == ("hé", [4, 5], [True, False])
    assert answer["finish_reason"] == "length"
    assert answer["usage"]["seed"] == 1 << 63
    assert answer["timings"]["wire_us"] == 0


def test_the_summary_counts_drafted_tokens_and_speed() -> None:
    assert summary(make_completion()) == "2 tokens, 1 of them drafted, in 1 passes; 2.0 tok/s; length"
