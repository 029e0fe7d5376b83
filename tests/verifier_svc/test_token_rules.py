"""Penalties, bias and forbidden tokens at every drafted position: the text is what one token at a time gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.errors import InvalidRequest
from slipstream.request import FinishReason, SamplingParams, VerificationMode
from slipstream.sampling.token_rules import TokenRules
from tests.sampling.random_rules import samplings
from tests.sampling.sequential import sequential
from tests.scripted_runner import chain_law, random_law
from tests.verifier_svc.harness import VOCAB, Harness

EOS = 3
LAW = random_law(VOCAB, seed=5)
PROMPT = (4, 5, 6, 4)


def stop_ids(sampling: SamplingParams) -> set[int]:
    return {*sampling.stop_token_ids, *(() if sampling.ignore_eos else (EOS,))}


def run(tokenizer, law, sequences, *, mode, num_draft_tokens, mistakes=0.3, vocab_size=VOCAB):
    """Texts of sequences (prompt, sampling) decoded together, with drafts that are now and then wrong; and the commits.

    Before each pass every sequence is offered a path along its own sequential text.
    """
    rng = np.random.default_rng(0)
    harness = Harness(
        law, tokenizer, vocab_size=vocab_size, num_blocks=256, eos_token_ids=(EOS,), max_num_batched_tokens=128
    )
    expected = [sequential(law, p, s, seed=i, stop_token_ids=stop_ids(s)) for i, (p, s) in enumerate(sequences)]
    for i, (prompt, sampling) in enumerate(sequences):
        fields = {name: getattr(sampling, name) for name in sampling.__slots__}
        harness.open(prompt, i, sampling=fields, mode=mode, seed=i, num_draft_tokens=num_draft_tokens)
    while (wake := harness.verifier.next_wake()) is not None or harness.verifier.num_waiting:
        harness.now = max(harness.now, wake or 0)
        for i, (prompt, _) in enumerate(sequences):
            done = len(harness.output(i))
            right = expected[i][done : done + num_draft_tokens]
            path = [int(rng.integers(vocab_size)) if rng.random() < mistakes else token_id for token_id in right]
            if path:
                harness.draft(len(prompt) + done, path, i, draw=done << 10)
        harness.step()
    return expected, [harness.output(i) for i in range(len(sequences))], harness


PROMPTS = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=6).map(tuple)
BATCHES = st.lists(st.tuples(PROMPTS, samplings(VOCAB)), min_size=1, max_size=8)


@settings(deadline=None, derandomize=True, max_examples=12)
@given(BATCHES, st.integers(0, 7), st.sampled_from(list(VerificationMode)))
def test_any_combination_of_parameters_gives_the_sequential_text(tokenizer, sequences, num_draft_tokens, mode):
    check_against_sequential_text(tokenizer, sequences, num_draft_tokens, mode)


@pytest.mark.slow
@pytest.mark.timeout(900)
@settings(deadline=None, max_examples=200)
@given(BATCHES, st.integers(0, 7), st.sampled_from(list(VerificationMode)))
def test_many_more_combinations_give_the_sequential_text(tokenizer, sequences, num_draft_tokens, mode):
    check_against_sequential_text(tokenizer, sequences, num_draft_tokens, mode)


def check_against_sequential_text(tokenizer, sequences, num_draft_tokens, mode):
    expected, texts, harness = run(tokenizer, LAW, sequences, mode=mode, num_draft_tokens=num_draft_tokens)
    accepted = sum(commit.num_accepted for commits in harness.commits.values() for commit in commits)
    assert accepted > 0 or num_draft_tokens * max(map(len, expected)) <= 7, "drafts were on"
    for i, (text, right) in enumerate(zip(texts, expected, strict=True)):
        ended = len(right) == sequences[i][1].max_tokens or set(right[-1:]) & stop_ids(sequences[i][1])
        assert text == right[: len(text)]
        assert text == right if ended else harness.failures[1, i], "only what may not go on is cut short"


GREEDY = {"temperature": 0.0, "max_tokens": 12, "ignore_eos": True}
EIGHT = random_law(8, seed=2, spread=1.0)


def test_a_frequency_penalty_counts_every_drafted_token_where_it_stands(tokenizer):
    sampling = SamplingParams(**GREEDY, frequency_penalty=0.7)
    prompt = (1, 2, 3)
    expected = sequential(EIGHT, prompt, sampling, seed=0)
    harness = Harness(EIGHT, tokenizer, vocab_size=8)
    harness.open(prompt, sampling=GREEDY | {"frequency_penalty": 0.7})
    while len(harness.output()) < 12:
        done = len(harness.output())
        harness.draft(3 + done, expected[done : done + 4] or [0], draw=done)
        harness.step()
    assert harness.output() == expected
    assert max(commit.num_accepted for commit in harness.commits[1, 1]) == 4
    assert max(expected.count(token_id) for token_id in expected) > 1, "something was counted"


def test_penalties_counted_once_per_step_are_caught(tokenizer, monkeypatch):
    right = TokenRules.row_entries
    monkeypatch.setattr(TokenRules, "row_entries", lambda rules, drafted: right(rules, ()))
    sequences = [((token_id,), SamplingParams(**GREEDY, frequency_penalty=1.0)) for token_id in range(4)]
    expected, texts, _ = run(
        tokenizer, EIGHT, sequences, mode=VerificationMode.RATIO, num_draft_tokens=4, mistakes=0.0, vocab_size=8
    )
    assert texts != expected


@pytest.mark.parametrize("num_draft_tokens", [0, 4])
def test_no_stop_token_comes_before_min_tokens_but_a_stop_string_may(tokenizer, num_draft_tokens):
    ends_at_once = chain_law(VOCAB, lambda history: EOS)
    for min_tokens in (1, 5):
        sampling = SamplingParams(temperature=0.0, max_tokens=12, min_tokens=min_tokens)
        expected, (text,), harness = run(
            tokenizer,
            ends_at_once,
            [(PROMPT, sampling)],
            mode=VerificationMode.RATIO,
            num_draft_tokens=num_draft_tokens,
        )
        assert text == expected[0]
        assert text.index(EOS) == min_tokens
        assert harness.commits[1, 0][-1].finish_reason is FinishReason.STOP
    harness = Harness(chain_law(VOCAB, lambda history: 7), tokenizer)
    harness.open(PROMPT, sampling=GREEDY | {"min_tokens": 9, "stop_strings": (tokenizer.token_bytes(7).decode(),)})
    harness.finish()
    assert harness.output() == [7]


def test_a_moved_sequence_goes_on_as_it_would_have(tokenizer):
    sampling = {"temperature": 0.9, "max_tokens": 12, "ignore_eos": True, "frequency_penalty": 0.8, "min_tokens": 6}
    sampling |= {"repetition_penalty": 1.4, "bad_words": ((5, 6), (9,))}
    expected = sequential(LAW, PROMPT, SamplingParams(**sampling), seed=4)
    harness = Harness(LAW, tokenizer)
    harness.open((*PROMPT, *expected[:5]), num_prompt_tokens=len(PROMPT), sampling=sampling, seed=4)
    harness.finish()
    assert expected[:5] + harness.output() == expected


def test_where_no_token_is_allowed_the_sequence_alone_ends_with_what_forbids_them(tokenizer):
    harness = Harness(LAW, tokenizer)
    harness.open(PROMPT, 1, sampling=GREEDY)
    harness.open(
        PROMPT, 2, sampling=GREEDY | {"allowed_token_ids": (5, 6), "bad_words": ((5, 5), (6, 5), (5, 6), (6, 6))}
    )
    harness.finish()
    assert len(harness.output(1)) == 12
    assert len(harness.output(2)) == 1
    assert isinstance(harness.error(2), InvalidRequest)
    assert "no token is allowed at position 5: allowed_token_ids, bad_words, min_tokens and grammar" in str(
        harness.error(2)
    )


@pytest.mark.parametrize(
    ("rule", "named"),
    [
        ({"logit_bias": ((VOCAB, 1.0),)}, "logit_bias"),
        ({"allowed_token_ids": (1, VOCAB)}, "allowed_token_ids"),
        ({"bad_words": ((1, VOCAB),)}, "bad_words"),
    ],
)
def test_ids_outside_the_vocabulary_are_refused_by_name(tokenizer, rule, named):
    harness = Harness(LAW, tokenizer)
    harness.open(PROMPT, sampling=rule)
    harness.finish()
    assert f"{named} holds token id {VOCAB}; ids must be in 0..{VOCAB - 1}" in str(harness.error())
