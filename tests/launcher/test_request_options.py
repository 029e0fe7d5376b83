"""From options of a command line to a request: what is sent, and what is left to the gateway."""

from __future__ import annotations

import pytest

from launcher.request_options import RequestOptions, biases, make_request, words
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


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (RequestOptions(top_k=-1), r"top_k is -1; it must be a whole number in 0\.\.4294967295"),
        (RequestOptions(n=1 << 40), "n is 1099511627776; it must be"),
        (RequestOptions(seed=-1), r"seed is -1; it must be a whole number in 0\.\.18446744073709551615"),
    ],
)
def test_a_number_that_the_protocol_cannot_say_is_named_with_its_range(options: RequestOptions, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make_request(ONCE, options)


def test_token_rules_are_read_from_the_way_they_are_written() -> None:
    options = RequestOptions(logit_bias=biases(["198=-5", "7=0.5"]), bad_words=words(["198,284", "7"]), min_tokens=3)
    request = make_request(ONCE, options)
    assert dict(request.logit_bias) == {198: -5.0, 7: 0.5}
    assert [list(word.ids) for word in request.bad_words] == [[198, 284], [7]]
    assert request.min_tokens == 3


@pytest.mark.parametrize("text", ["198", "a=1", "198=", "", "99999999999=1", "-1=1"])
def test_a_bias_that_is_none_is_named_with_how_to_write_it(text: str) -> None:
    with pytest.raises(ValueError, match=f"logit bias '{text}' .* write it as 198=-5"):
        biases([text])


def test_a_bad_word_that_is_none_is_named_with_how_to_write_it() -> None:
    with pytest.raises(ValueError, match=r"bad word 'hi' .* write it as 198,284"):
        words(["hi"])
