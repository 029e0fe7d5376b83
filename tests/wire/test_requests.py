"""Open, Update and Close: what goes in comes out, and nonsense is refused by name."""

from __future__ import annotations

import math

import pytest

from slipstream.errors import InvalidRequest
from slipstream.exchange import Update
from slipstream.request import Grammar, GrammarKind, SamplingParams, SequenceRequest, VerificationMode
from slipstream.wire.requests import (
    close_from_wire,
    close_to_wire,
    open_from_wire,
    open_to_wire,
    update_from_wire,
    update_to_wire,
)
from slipstream.wire.v1 import exchange_pb2 as pb


def make_request(**changes: object) -> SequenceRequest:
    sampling = SamplingParams(
        temperature=0.5,
        top_k=40,
        top_p=0.75,
        min_p=0.25,
        max_tokens=9,
        stop_token_ids=(2, 5),
        stop_strings=("ä\n",),
        repetition_penalty=1.5,
        presence_penalty=-0.5,
        frequency_penalty=0.25,
        logit_bias=((3, -100.0), (49151, 0.5)),
        allowed_token_ids=(3, 9, 49151),
        bad_words=((7,), (3, 9)),
        min_tokens=4,
        logprobs=True,
        num_top_logprobs=5,
        prompt_logprobs=True,
        grammar=Grammar(GrammarKind.REGEX, "[ab]+"),
    )
    values: dict[str, object] = {
        "sequence_id": 1 << 40,
        "token_ids": (1, 2, 49151),
        "num_prompt_tokens": 2,
        "sampling": sampling,
        "mode": VerificationMode.COUPLED,
        "seed": (1 << 64) - 1,
        "nonce": 1 << 63,
        "sample_index": 3,
        "num_draft_tokens": 5,
        "fan_out": 8,
        "max_wait_us": 900,
        "proposers": ("ngram", "draft_model"),
        "epoch": 2,
        "adapter": "law",
        "tenant": "acme",
        "vocabulary_hash": "ab12",
        "deadline_ms": 77,
        "request_id": "r-1",
        "features": "c" * 64,
    }
    return SequenceRequest(**(values | changes))  # type: ignore[arg-type]


def test_an_open_comes_back_as_it_was() -> None:
    request = make_request()
    message = pb.Open.FromString(open_to_wire(request).SerializeToString())
    assert open_from_wire(message) == request


def test_update_and_close_come_back_as_they_were() -> None:
    update = Update(sequence_id=4, num_draft_tokens=0, fan_out=2, max_wait_us=10)
    assert update_from_wire(update_to_wire(update)) == update
    assert close_from_wire(close_to_wire(4)) == 4


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"mode": 0}, "mode is 0; it must be 1"),
        ({"mode": 9}, "mode is 9"),
        ({"token_ids": b""}, "prompt is empty"),
        ({"num_prompt_tokens": 9}, "num_prompt_tokens is 9; it must be in 1..3"),
        ({"sampling": pb.Sampling(temperature=math.nan, top_p=1, max_tokens=1)}, "temperature is nan"),
        ({"sampling": pb.Sampling(top_p=0, max_tokens=1)}, "top_p is 0.0"),
    ],
)
def test_an_open_that_asks_for_nonsense_is_refused_by_name(change: dict[str, object], said: str) -> None:
    message = open_to_wire(make_request())
    for field, value in change.items():
        if isinstance(value, pb.Sampling):
            message.sampling.CopyFrom(value)
        else:
            setattr(message, field, value)
    with pytest.raises(InvalidRequest, match=said):
        open_from_wire(message)
