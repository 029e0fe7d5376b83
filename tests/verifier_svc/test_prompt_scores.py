"""Log probabilities of a prompt: all of it, in order, once, whatever it is cut into and whatever the cache holds."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream.wire.commits import commit_batch_from_wire
from tests.scripted_runner import random_law
from tests.verifier_svc.harness import VOCAB, Harness
from verifier_svc.servicer import to_responses

LAW = random_law(VOCAB, seed=3)
PROMPT = [3 + i * i % 19 for i in range(23)]
ASKS = {"prompt_logprobs": True, "num_top_logprobs": 2}


def expected(prompt=PROMPT):
    """Of positions 1, 2, ...: [len(prompt) - 1]"""
    return [log_softmax(prompt[:end])[prompt[end]] for end in range(1, len(prompt))]


def log_softmax(history):
    logits = LAW(tuple(history))
    return logits - np.logaddexp.reduce(logits)


class Told:
    """Steps a harness and keeps what is said of prompts."""

    def __init__(self, tokenizer, **limits):
        self.harness = Harness(LAW, tokenizer, **limits)
        self.parts = []
        step = self.harness.step

        def noting_step(*args, **kwargs):
            outputs = step(*args, **kwargs)
            self.parts += [part for output in outputs for part in output.commits.prompt_logprobs]
            return outputs

        self.harness.step = noting_step

    def of(self, sequence_id=1):
        parts = [part for part in self.parts if part.sequence_id == sequence_id]
        at = 1
        for part in parts:
            assert part.start == at, "parts must follow one another"
            at += len(part.logprobs)
        return [value for part in parts for value in part.logprobs.logprobs.tolist()]

    @property
    def num_fed(self):
        return sum(len(chunk.token_ids) for chunks in self.harness.runner.chunks for chunk in chunks)


@pytest.mark.parametrize("budget", [4, 7, 32])
def test_each_prompt_token_is_told_once_however_the_prompt_is_cut(tokenizer, budget):
    told = Told(tokenizer, max_num_batched_tokens=budget, max_num_seqs=2)
    told.harness.open(PROMPT, sampling={"max_tokens": 1} | ASKS)
    told.harness.finish()
    np.testing.assert_allclose(told.of(), expected(), atol=1e-4)
    assert max(len(part.logprobs) for part in told.parts) <= budget
    assert told.num_fed == len(PROMPT)
    best = [int(np.argmax(log_softmax(PROMPT[:end]))) for end in range(1, len(PROMPT))]
    assert [row[0] for part in told.parts for row in part.logprobs.top_token_ids] == best


def test_long_parts_go_in_bounded_messages_before_the_commits(tokenizer, monkeypatch):
    monkeypatch.setattr("verifier_svc.prompt_scores.MAX_PART_TOKENS", 10)
    told = Told(tokenizer)
    told.harness.open(PROMPT, sampling={"max_tokens": 1} | ASKS)
    (output,) = told.harness.step()
    np.testing.assert_allclose(told.of(), expected(), atol=1e-4)
    batches = [commit_batch_from_wire(response.commits) for response in to_responses(output)]
    sizes = [[len(part.logprobs) for part in batch.prompt_logprobs] for batch in batches]
    assert sizes == [[10], [10], [2], []]
    assert [len(batch.commits) for batch in batches] == [0, 0, 0, 1]
    assert {batch.step for batch in batches} == {output.commits.step}


def test_it_changes_no_output_and_drafts_stay_on(tokenizer):
    texts = []
    for asks in ({}, ASKS | {"logprobs": True}):
        harness = Harness(LAW, tokenizer, local_proposers=("ngram",))
        harness.open(PROMPT * 2, sampling=asks, proposers=("ngram",))
        harness.finish()
        texts.append(harness.output())
        assert sum(commit.num_draft_tokens for commit in harness.commits[1, 1]) > 0
    assert texts[0] == texts[1]


def test_what_the_prefix_cache_holds_is_computed_again_and_others_may_use_it(tokenizer):
    told = Told(tokenizer)
    for sequence_id, asks in ((1, {}), (2, ASKS), (3, {})):
        told.harness.open(PROMPT, sequence_id, sampling={"max_tokens": 1} | asks)
        told.harness.finish()
    np.testing.assert_allclose(told.of(2), expected(), atol=1e-4)
    cached = [told.harness.commits[1, sequence_id][0].num_cached_tokens for sequence_id in (1, 2, 3)]
    assert cached == [0, 0, 20]


def test_a_preempted_prompt_is_not_told_again(tokenizer):
    told = Told(tokenizer, num_blocks=12, max_num_batched_tokens=8, max_num_seqs=4)
    told.harness.open(PROMPT[:8], 1, sampling={"max_tokens": 40}, num_draft_tokens=0)
    told.harness.step()
    told.harness.open(PROMPT, 2, sampling={"max_tokens": 20} | ASKS, num_draft_tokens=0)
    told.harness.finish()
    assert told.num_fed > len(PROMPT) + 8 + 40 + 20, "nothing was preempted"
    np.testing.assert_allclose(told.of(2), expected(), atol=1e-4)


def test_a_sequence_that_moved_here_has_its_prompt_told_and_not_its_output(tokenizer):
    told = Told(tokenizer)
    told.harness.open(PROMPT, sampling={"max_tokens": 12} | ASKS, num_prompt_tokens=15)
    told.harness.finish()
    np.testing.assert_allclose(told.of(), expected()[:14], atol=1e-4)


def test_a_prompt_of_one_token_has_none(tokenizer):
    told = Told(tokenizer)
    told.harness.open(PROMPT[:1], sampling={"max_tokens": 2} | ASKS)
    told.harness.finish()
    assert told.parts == []
    assert len(told.harness.output()) == 2
