"""Sampling parameters over the wire: what is left out is off, and arrays that disagree are refused by name."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream.errors import InvalidRequest
from slipstream.request import Grammar, GrammarKind, SamplingParams
from slipstream.wire.sampling import grammar_from_wire, grammar_to_wire, sampling_from_wire, sampling_to_wire
from slipstream.wire.v1 import exchange_pb2 as pb


def test_what_a_sender_leaves_out_is_off() -> None:
    assert sampling_from_wire(pb.Sampling(temperature=1, top_p=1, max_tokens=16)) == SamplingParams()


@pytest.mark.parametrize("kind", list(GrammarKind))
def test_every_kind_of_grammar_comes_back_as_it_was(kind: GrammarKind) -> None:
    assert grammar_from_wire(grammar_to_wire(Grammar(kind, "x"))) == Grammar(kind, "x")


def test_a_grammar_that_says_nothing_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="grammar is empty; give one of json_schema, regex, ebnf, choice"):
        grammar_from_wire(pb.Grammar())


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("repetition_penalty", 0.0, r"repetition_penalty is 0.0; it must be in \[0.01, 100.0\]"),
        ("presence_penalty", float("nan"), "presence_penalty is nan"),
        ("frequency_penalty", float("inf"), r"frequency_penalty is inf; it must be in \[-2.0, 2.0\]"),
        ("logit_bias_ids", b"\0\0\0\0", "logit_bias_ids has 1 entries and logit_bias_values 0"),
        ("logit_bias_values", b"\0\0", "logit_bias_values is 2 bytes long"),
        ("allowed_token_ids", np.asarray([-1], "<i4").tobytes(), "allowed_token_ids is -1"),
        (
            "bad_word_lengths",
            np.asarray([2], "<u2").tobytes(),
            "bad_words has 0 token ids; the lengths of its words say 2",
        ),
        ("bad_word_lengths", np.asarray([0], "<u2").tobytes(), r"bad_words is \(\); it must be words of 1..32 tokens"),
        ("min_tokens", 17, "min_tokens is 17; it must be in 0..16, max_tokens"),
        ("num_top_logprobs", 21, "num_top_logprobs is 21; it must be in 0..20"),
    ],
)
def test_what_no_law_can_hold_is_refused_by_name(field: str, value: object, said: str) -> None:
    message = sampling_to_wire(SamplingParams())
    setattr(message, field, value)
    with pytest.raises(InvalidRequest, match=said):
        sampling_from_wire(message)
