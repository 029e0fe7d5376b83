"""From a completion to what the verifier is asked. What is refused is in test_servicer.py, as callers see it."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.admission import admit
from gateway.completion import Completion
from gateway.peers.catalog import ServedModel
from gateway.peers.tokenizer_store import TextTools
from gateway.policy.tenants import Tenant
from slipstream.errors import InvalidRequest
from slipstream.exchange import ModelInfo
from slipstream.request import SequenceRequest
from slipstream.text.chat_template import ChatTemplate
from tests.text.tiny_tokenizers import metaspace

TOKENIZER = metaspace()
TEXT = TextTools(TOKENIZER, ChatTemplate("{{ bos_token }}{{ messages[0].content }}", {"bos_token": "<s>"}))
MODEL = ServedModel(ModelInfo(name="tiny", vocabulary_hash="h", vocab_size=300, max_model_len=64), TEXT)
TENANT = Tenant(name="acme", anonymous=True, proposers=("ngram",), num_draft_tokens=3, max_tokens=40)


def admitted(num_prompt_tokens: int = 2, tenant: Tenant = TENANT, **fields: Any) -> SequenceRequest:
    prompt = (1,) * num_prompt_tokens
    return admit(Completion(prompt=prompt, **fields), prompt, tenant=tenant, model=MODEL, sequence_id=5)


@pytest.mark.parametrize(("num_prompt_tokens", "max_tokens"), [(2, 40), (24, 40), (60, 4), (63, 1)])
def test_output_is_bounded_by_the_context_and_by_the_tenant(num_prompt_tokens: int, max_tokens: int) -> None:
    assert admitted(num_prompt_tokens).sampling.max_tokens == max_tokens


def test_a_prompt_that_leaves_no_room_is_refused_with_both_numbers() -> None:
    with pytest.raises(InvalidRequest, match=r"prompt has 64 tokens; it must be <= 63, .* is 64 tokens"):
        admitted(64)


def test_the_tenants_policy_is_what_the_verifier_is_asked_for() -> None:
    request = admitted(seed=9)
    assert (request.proposers, request.num_draft_tokens, request.tenant, request.seed) == (("ngram",), 3, "acme", 9)
    off = admitted(tenant=Tenant(name="off", anonymous=True, proposers=("none",)))
    assert (off.proposers, off.num_draft_tokens) == ((), 0)


@pytest.mark.parametrize(
    ("field", "value"),
    [("logit_bias", ((300, 1.0),)), ("allowed_token_ids", (1, 300)), ("bad_words", ((1,), (2, 300)))],
)
def test_ids_outside_the_vocabulary_are_named_with_their_range(field: str, value: Any) -> None:
    with pytest.raises(InvalidRequest, match=rf"{field} holds token id 300; ids must be in 0\.\.299"):
        admitted(**{field: value})


def test_what_shapes_the_law_token_by_token_reaches_the_verifier() -> None:
    asked = {"repetition_penalty": 1.2, "presence_penalty": 0.5, "frequency_penalty": -0.5, "min_tokens": 3}
    asked |= {"logit_bias": ((7, -2.0),), "allowed_token_ids": (7, 8), "bad_words": ((7, 8),)}
    sampling = admitted(**asked).sampling
    assert {name: getattr(sampling, name) for name in asked} == asked
