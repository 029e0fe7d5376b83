"""`slipstream generate`: what it prints."""

from __future__ import annotations

import json

from launcher.client import Completion
from launcher.generate import as_json_text, summary
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


def test_json_holds_the_whole_answer_with_numbers_as_numbers() -> None:
    answer = json.loads(as_json_text(make_completion()))
    assert (answer["text"], answer["token_ids"], answer["drafted"]) == ("hé", [4, 5], [True, False])
    assert answer["finish_reason"] == "length"
    assert answer["usage"]["seed"] == 1 << 63
    assert answer["timings"]["wire_us"] == 0


def test_the_summary_counts_drafted_tokens_and_speed() -> None:
    assert summary(make_completion()) == "2 tokens, 1 of them drafted, in 1 passes; 2.0 tok/s; length"
