"""Under a grammar, output is distributed as the masked target alone would have it, though drafts know no grammar."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from slipstream.request import VerificationMode
from tests.scripted_runner import random_law
from tests.tiny_models import EOS_TOKEN_ID
from tests.verifier_svc.guided import BlindDrafter, regex
from tests.verifier_svc.harness import REMOTE, VOCAB, Harness
from verifier_svc.active_sequence import ActiveSequence

PROMPT = (3, 4, 1)
FIRST, SECOND = (3, 4, 5), (3, 4, 5, 6, 7)  # tokens 3, 4, ... are A, B, ...
GRAMMAR = regex("[A-C][A-E]")
NUM_SEQUENCES = 2000
ALPHA = 1e-3
TARGET = random_law(VOCAB, seed=1, spread=0.7)
BLIND = random_law(VOCAB, seed=2, spread=0.7)
LETTERS = 2.5 * np.isin(np.arange(VOCAB), (4, 9, 10))


def first_two_tokens(tokenizer, mode):
    """Counts [first, second], and how many passes ended at an illegal draft token."""
    harness = Harness(
        TARGET, tokenizer, max_num_seqs=64, max_num_batched_tokens=512, num_blocks=256, eos_token_ids=(EOS_TOKEN_ID,)
    )
    drafter = BlindDrafter(blind, REMOTE, VerificationMode.RATIO)
    for first in range(0, NUM_SEQUENCES, 64):
        batch = range(first, min(first + 64, NUM_SEQUENCES))
        for i in batch:
            sampling = {"temperature": 1.0, "max_tokens": 4, "grammar": GRAMMAR}
            harness.open(PROMPT, i, sampling=sampling, seed=i, nonce=7 * i + 1, num_draft_tokens=2, mode=mode)
            if i % 4:
                drafter.send(harness, i, PROMPT, 2)
        harness.finish()
    counts = np.zeros((len(FIRST), len(SECOND)))
    for i in range(NUM_SEQUENCES):
        one, two, _ = harness.output(i)
        counts[FIRST.index(one), SECOND.index(two)] += 1
    assert not harness.failures
    return counts, sum(commit.num_accepted for commits in harness.commits.values() for commit in commits)


def p_value(counts):
    law = masked(PROMPT, FIRST)[:, None] * np.array([masked((*PROMPT, one), SECOND) for one in FIRST])
    return stats.chisquare(counts.ravel(), law.ravel() * NUM_SEQUENCES).pvalue


def blind(history):
    """Prefers B, which is legal, and G and H, which are not."""
    return BLIND(history) + LETTERS


def masked(history, allowed):
    weights = np.exp(TARGET(history)[list(allowed)])
    return weights / weights.sum()


@pytest.mark.parametrize("mode", VerificationMode)
def test_the_first_two_tokens_follow_the_masked_law(tokenizer, mode):
    counts, num_accepted = first_two_tokens(tokenizer, mode)
    assert num_accepted > NUM_SEQUENCES / 20
    assert p_value(counts) > ALPHA


def test_drawing_from_the_target_where_an_illegal_draft_was_cut_is_caught(tokenizer, monkeypatch):
    check = ActiveSequence.check
    monkeypatch.setattr(ActiveSequence, "check", lambda self, path: replace(check(self, path), cut=None))
    counts, _ = first_two_tokens(tokenizer, VerificationMode.RATIO)
    assert p_value(counts) < ALPHA
