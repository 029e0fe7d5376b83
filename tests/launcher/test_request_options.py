"""From options of a command line to a request: what is sent, and what is left to the gateway."""

from __future__ import annotations

import pytest

from launcher.request_options import RequestOptions, make_request
from slipstream.wire.v1 import generation_pb2 as pb

ONCE = pb.Prompt(text="Once")


def test_an_unset_seed_is_not_sent() -> None:
    request = make_request(ONCE, RequestOptions())
    assert request.prompt.text == "Once"
    assert not request.HasField("seed")


def test_greedy_is_said_and_not_left_to_the_default() -> None:
    request = make_request(ONCE, RequestOptions(temperature=0.0, seed=0))
    assert request.HasField("temperature")
    assert request.HasField("seed")


def test_a_number_that_the_protocol_cannot_say_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="-1"):
        make_request(ONCE, RequestOptions(top_k=-1))
