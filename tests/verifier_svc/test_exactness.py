"""Output is distributed as the target alone would have it, whatever is drafted: first two tokens at T = 1, counted.

The drafts come by every road at once: in time and late, from two proposers, as guessed outcomes, and not at all.
"""

from functools import cache

import numpy as np
import pytest
from scipy import stats

from slipstream.exchange import LAW_TOTAL, DraftToken, LawKind, SparseLaw
from slipstream.request import VerificationMode
from tests.scripted_runner import random_law
from tests.verifier_svc.harness import Harness

VOCAB = 5
PROMPT = (3, 4, 1)
NUM_SEQUENCES = 3000
ALPHA = 1e-3
PROPOSERS = ("draft_model", "other")
TARGET = random_law(VOCAB, seed=1, spread=1.2)
DRAFTS = {name: random_law(VOCAB, seed=seed, spread=1.2) for name, seed in zip(PROPOSERS, (2, 3), strict=True)}


def softmax(logits):
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


@cache
def draft_law(proposer, history):
    counts = np.maximum(1, np.floor(softmax(DRAFTS[proposer](history)) * LAW_TOTAL)).astype(np.int64)
    counts[counts.argmax()] += LAW_TOTAL - counts.sum()
    return SparseLaw(np.arange(VOCAB, dtype=np.int32), counts.astype(np.uint16))


class Drafter:
    """Draws from its laws by its own generator, as drafters do."""

    def __init__(self, proposer, *, drops_unlikely=False):
        self.proposer = proposer
        self._rng = np.random.default_rng(len(proposer))
        self._drops_unlikely = drops_unlikely
        self._draw = 0

    def next_draw(self):
        self._draw += 1
        return self._draw

    def path(self, history, count=2):
        tokens = []
        for _ in range(count):
            law = draft_law(self.proposer, history)
            token_id = int(self._rng.choice(VOCAB, p=law.counts / LAW_TOTAL))
            if self._drops_unlikely and law.probability(token_id) < 0.2:
                break  # the forbidden rule: the token's own value decides whether it is submitted
            tokens.append(DraftToken(token_id, LawKind.SPARSE, law))
            history = (*history, token_id)
        return tokens


def send(harness, drafter, sequence_id, tokens):
    harness.draft(len(PROMPT), tokens, sequence_id, draw=drafter.next_draw(), proposer=drafter.proposer)


def send_early(harness, drafters, sequence_id):
    """By turns: one proposer; both; nothing; a path and, for each outcome that may come instead, what follows it."""
    one, other = drafters
    road = sequence_id % 4
    if road in (0, 1):
        send(harness, one, sequence_id, one.path(PROMPT))
    if road == 1:
        send(harness, other, sequence_id, other.path(PROMPT))
    if road == 3:
        send(harness, one, sequence_id, one.path(PROMPT, count=1))
        for outcome in range(VOCAB):
            guess = DraftToken(outcome, LawKind.ASSUMED)
            send(harness, one, sequence_id, [guess, *one.path((*PROMPT, outcome))])


def send_late(harness, drafters, sequence_id):
    """Drafts on the prompt alone when the first token is already final: dropped or picked up in the middle."""
    for drafter in drafters:
        send(harness, drafter, sequence_id, drafter.path(PROMPT))


def first_two_tokens(tokenizer, mode, **drafter_options):
    """Counts [VOCAB, VOCAB], and how many drafted tokens were accepted and refused."""
    harness = Harness(TARGET, tokenizer, vocab_size=VOCAB, max_num_seqs=64, max_num_batched_tokens=512, num_blocks=256)
    drafters = [Drafter(name, **drafter_options) for name in PROPOSERS]
    for first in range(0, NUM_SEQUENCES, 64):
        batch = range(first, min(first + 64, NUM_SEQUENCES))
        for i in batch:
            options = {"seed": i, "nonce": 7 * i + 1, "num_draft_tokens": 2, "proposers": PROPOSERS, "mode": mode}
            harness.open(PROMPT, i, sampling={"temperature": 1.0, "max_tokens": 4}, **options)
            send_early(harness, drafters, i)
        harness.step()
        for i in batch:
            if i % 4 == 2:
                send_late(harness, drafters, i)
        harness.finish()
    counts = np.zeros((VOCAB, VOCAB))
    for i in range(NUM_SEQUENCES):
        counts[tuple(harness.output(i)[:2])] += 1
    passes = [commit for commits in harness.commits.values() for commit in commits]
    num_accepted = sum(commit.num_accepted for commit in passes)
    return counts, num_accepted, sum(commit.num_draft_tokens for commit in passes) - num_accepted


def p_value(counts):
    law = np.array([softmax(TARGET(PROMPT))[first] * softmax(TARGET((*PROMPT, first))) for first in range(VOCAB)])
    return stats.chisquare(counts.ravel(), law.ravel() * NUM_SEQUENCES).pvalue


@pytest.mark.parametrize("mode", VerificationMode)
def test_the_first_two_tokens_follow_the_target_law(tokenizer, mode):
    counts, num_accepted, num_rejected = first_two_tokens(tokenizer, mode)
    assert min(num_accepted, num_rejected) > NUM_SEQUENCES / 5
    assert p_value(counts) > ALPHA


def test_a_drafter_that_drops_tokens_by_its_own_confidence_is_caught(tokenizer):
    counts, _, _ = first_two_tokens(tokenizer, VerificationMode.RATIO, drops_unlikely=True)
    assert p_value(counts) < ALPHA
