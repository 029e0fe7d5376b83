"""Out-of-order, duplicated, stale and garbage draft messages change nothing but speed: over random schedules."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.exchange import LAW_TOTAL, Draft, DraftBatch, DraftToken, LawKind, SparseLaw
from slipstream.request import VerificationMode
from tests.scripted_runner import random_law
from tests.verifier_svc.harness import REMOTE, VOCAB, Harness, plain_output

LAW = random_law(VOCAB, seed=7)
PROMPT = [3, 4, 5]
LENGTH = 14
PROPOSERS = (REMOTE, "ngram")

GREEDY = {"sampling": {"temperature": 0.0, "max_tokens": LENGTH}, "mode": VerificationMode.RATIO}
COUPLED = {"sampling": {"temperature": 1.0, "max_tokens": LENGTH}, "mode": VerificationMode.COUPLED, "seed": 11}


@st.composite
def laws(draw, token_id):
    """Mostly a distribution that the token can come from, sometimes not."""
    others = draw(st.lists(st.integers(-1, VOCAB), max_size=3))
    counts = np.array([draw(st.integers(1, LAW_TOTAL)), *[draw(st.integers(0, 99)) for _ in others]], dtype=np.uint16)
    if draw(st.booleans()):
        counts[0] = LAW_TOTAL - int(counts[1:].sum())
    return SparseLaw(np.array([token_id, *others], dtype=np.int32), counts)


@st.composite
def drafts(draw, truth):
    """A path from anywhere: right to a random depth, then anything, as any kind of token."""
    offset = draw(st.integers(-2, LENGTH))
    depth = draw(st.integers(0, 6))
    right = list(truth[max(offset, 0) : max(offset, 0) + depth])
    token_ids = right + draw(st.lists(st.integers(-1, VOCAB), max_size=2))
    tokens = []
    for token_id in token_ids:
        kind = draw(st.sampled_from(LawKind))
        law = draw(laws(token_id)) if kind is LawKind.SPARSE else None
        tokens.append(DraftToken(token_id, kind, law))
    proposer = draw(st.sampled_from([*PROPOSERS, "stranger"]))
    sequence_id = draw(st.sampled_from([1, 1, 1, 2]))
    return Draft(sequence_id, len(PROMPT) + offset, proposer, draw(st.integers(0, 5)), tuple(tokens))


@pytest.mark.parametrize("options", [GREEDY, COUPLED], ids=["greedy", "coupled"])
@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_any_schedule_of_drafts_gives_the_text_of_none(tokenizer, options, data):
    truth = plain_output(LAW, tokenizer, PROMPT, **options)
    sent = data.draw(st.lists(drafts(truth), max_size=12))
    schedule = data.draw(st.permutations(sent * 2))  # each twice, in any order
    num_draft_tokens = data.draw(st.integers(0, 6))
    harness = Harness(LAW, tokenizer, num_blocks=data.draw(st.sampled_from([6, 64])), local_proposers=("ngram",))
    harness.open(PROMPT, proposers=PROPOSERS, num_draft_tokens=num_draft_tokens, max_wait_us=2000, **options)
    for draft in schedule:
        harness.post(DraftBatch((draft,)))
        if data.draw(st.booleans()):
            harness.step()
    harness.finish()
    assert harness.output() == truth
    assert not harness.failures
    assert harness.verifier.pool.num_used == 0


def test_right_drafts_in_the_same_harness_do_get_accepted(tokenizer):
    """The control: with nothing ever accepted the property above would hold without meaning anything."""
    for options in (GREEDY, COUPLED):
        truth = plain_output(LAW, tokenizer, PROMPT, **options)
        harness = Harness(LAW, tokenizer)
        harness.open(PROMPT, proposers=PROPOSERS, num_draft_tokens=4, **options)
        harness.draft(len(PROMPT), truth)
        harness.finish()
        assert sum(commit.num_accepted for commit in harness.commits[1, 1]) >= 10
