"""Requests that a model cannot serve are refused by name."""

import pytest

from slipstream.errors import InvalidRequest, VocabularyMismatch
from tests.scripted_runner import random_law
from tests.verifier_svc.harness import VOCAB, Harness, plain_output

LAW = random_law(VOCAB)
PROMPT = [3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    "options, text",
    [
        ({"prompt": [1, VOCAB]}, f"token_ids holds token id {VOCAB}; ids must be in 0..{VOCAB - 1}"),
        ({"prompt": [-1]}, "token_ids holds token id -1"),
        ({"sampling": {"stop_token_ids": (99,)}}, "stop_token_ids holds token id 99"),
        ({"prompt": [1] * 64}, "the prompt has 64 tokens and the context 64"),
        ({"num_prompt_tokens": 1, "sampling": {"max_tokens": 4}}, "4 output tokens are committed and max_tokens is 4"),
    ],
)
def test_a_bad_request_is_named_and_changes_nothing_for_others(tokenizer, options, text):
    harness = Harness(LAW, tokenizer)
    harness.open(PROMPT, 1)
    harness.open(options.pop("prompt", PROMPT), 2, **options)
    harness.finish()
    assert isinstance(harness.error(2), InvalidRequest)
    assert text in str(harness.error(2))
    assert harness.output(1) == plain_output(LAW, tokenizer, PROMPT)


def test_ids_of_another_vocabulary_are_refused(tokenizer):
    harness = Harness(LAW, tokenizer)
    harness.open(PROMPT, 1, vocabulary_hash="0" * 64)
    harness.open(PROMPT, 2, vocabulary_hash=tokenizer.vocabulary_hash)
    harness.finish()
    assert isinstance(harness.error(1), VocabularyMismatch)
    assert len(harness.output(2)) == 12
