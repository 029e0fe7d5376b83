"""The waiting rule, each of its conditions by itself."""

import pytest

from slipstream.exchange import Update
from tests.scripted_runner import chain_law, random_law
from tests.verifier_svc.harness import REMOTE, VOCAB, Harness
from verifier_svc.waiting import AT_ONCE, NEVER, next_start

LAW = random_law(VOCAB)
PROMPT = [3, 4, 5, 6, 7]
WAIT_US = 5_000


def opened(tokenizer, **options):
    """A harness whose sequence has just been prefilled and decided its first token, at time 100."""
    harness = Harness(LAW, tokenizer, local_proposers=options.pop("local_proposers", ()))
    harness.open(PROMPT, **({"max_wait_us": WAIT_US} | options))
    harness.step(seconds=0)
    assert len(harness.output()) == 1, "the prompt is not waited for"
    return harness


def start(harness):
    return next_start(harness.verifier.sequences.all)


def test_nothing_open_means_never(tokenizer):
    assert start(Harness(LAW, tokenizer)) == NEVER


def test_a_lone_sequence_without_drafts_waits_up_to_its_bound(tokenizer):
    harness = opened(tokenizer)
    assert start(harness) == pytest.approx(100.005)
    assert harness.step(seconds=0.005) == []
    assert len(harness.step()) == 1


def test_the_arrival_of_a_draft_ends_the_wait(tokenizer):
    harness = opened(tokenizer)
    harness.draft(6, [1, 2])
    assert start(harness) == AT_ONCE


@pytest.mark.parametrize(
    "options",
    [
        {"num_draft_tokens": 0},
        {"max_wait_us": 0},
        {"proposers": ()},
        {"proposers": ("ngram",), "local_proposers": ("ngram",)},
        {"sampling": {"max_tokens": 2}},
    ],
    ids=str,
)
def test_who_can_get_no_drafts_does_not_wait(tokenizer, options):
    assert start(opened(tokenizer, **options)) == AT_ONCE


def test_ngram_drafts_from_elsewhere_are_waited_for_when_the_verifier_makes_none(tokenizer):
    assert start(opened(tokenizer, proposers=("ngram",))) == pytest.approx(100.005)


def test_with_a_second_sequence_open_nobody_waits(tokenizer):
    harness = opened(tokenizer)
    harness.open(PROMPT, 2, max_wait_us=WAIT_US)
    assert start(harness) == AT_ONCE


def test_a_drafter_that_let_a_wait_run_out_is_not_waited_for_until_it_speaks(tokenizer):
    harness = opened(tokenizer)
    harness.pass_seconds = 0.02
    harness.now += 0.005
    harness.step(seconds=0)
    assert start(harness) == AT_ONCE
    harness.draft(5, [23, 23])  # too late and wrong, but a sign of life
    assert start(harness) == pytest.approx(harness.now + 0.005)


def test_going_on_at_once_in_company_is_not_silence_of_the_drafter(tokenizer):
    harness = opened(tokenizer)
    harness.pass_seconds = 0.02
    harness.open(PROMPT, 2, sampling={"max_tokens": 1})
    harness.step(seconds=0)
    assert len(harness.verifier.sequences) == 1
    assert start(harness) == pytest.approx(harness.now + 0.005)


def test_nobody_waits_longer_than_drafts_are_worth(tokenizer):
    harness = opened(tokenizer)
    harness.pass_seconds = 0.001
    for _ in range(4):  # passes of 1 ms: even four accepted tokens are worth less than the 5 ms allowed
        harness.draft(next(iter(harness.verifier.sequences.all)).engine.num_tokens, [23, 23])
        harness.step(seconds=0)
    assert harness.now < start(harness) < harness.now + 0.002


def test_new_bounds_end_a_wait(tokenizer):
    harness = opened(tokenizer)
    harness.post(Update(1, 4, 0, 0))
    assert start(harness) == AT_ONCE


def repeating(tokenizer, **options):
    law = chain_law(VOCAB, lambda history: 3 + (history[-1] - 2) % 4)  # 3 4 5 6 3 4 5 6 ...
    harness = Harness(law, tokenizer, local_proposers=("ngram",))
    harness.open([3, 4, 5, 6] * 3, **options)
    return harness


def test_a_miss_goes_on_with_a_local_ngram_draft(tokenizer):
    harness = repeating(tokenizer, proposers=(REMOTE, "ngram"), num_draft_tokens=3)
    harness.finish()
    commits = harness.commits[1, 1]
    assert [(commit.proposer, commit.num_accepted, commit.hit) for commit in commits] == [("ngram", 3, False)] * 3


def test_a_local_draft_needs_the_requests_leave(tokenizer):
    harness = repeating(tokenizer, proposers=(REMOTE,), num_draft_tokens=3)
    harness.finish()
    assert all(commit.num_draft_tokens == 0 for commit in harness.commits[1, 1])


def test_drafts_in_the_tree_go_before_a_local_one(tokenizer):
    harness = repeating(tokenizer, proposers=("ngram", REMOTE), num_draft_tokens=3)
    harness.draft(12, [9, 9, 9])
    harness.step()
    assert harness.commits[1, 1][0].proposer == REMOTE


def test_n_grams_that_stand_are_no_reason_to_wait_for_a_model(tokenizer):
    harness = repeating(tokenizer, proposers=("ngram", REMOTE), max_wait_us=WAIT_US, sampling={"max_tokens": 99})
    harness.pass_seconds = 0.001
    (active,) = harness.verifier.sequences.all
    for right, proposer in [(False, REMOTE)] * 8 + [(True, "ngram")] * 6:
        last = active.engine.token_ids[-1]
        following = [3 + (last - 2 + i) % 4 for i in range(3)] if right else [9]
        harness.draft(active.engine.num_tokens, following, proposer=proposer, draw=active.num_commits)
        harness.step(seconds=0)
    assert harness.commits[1, 1][-1].num_accepted == 3
    assert harness.now < start(harness) < harness.now + 0.001


def in_company(tokenizer, num_sequences=3, **options):
    """Sequences of a verifier whose drafter is in its process; each has had passes of 10 ms with drafts of no use."""
    harness = Harness(LAW, tokenizer)
    for sequence_id in range(1, num_sequences + 1):
        harness.open(PROMPT, sequence_id, sampling={"max_tokens": 99}, **({"max_wait_us": 50_000} | options))
    harness.step(seconds=0)
    harness.pass_seconds = 0.01
    for _ in range(2):
        draft_for(harness, *range(1, num_sequences + 1))
        harness.step(seconds=0)
    return harness


def draft_for(harness, *sequence_ids):
    for active in harness.verifier.sequences.all:
        if active.request.sequence_id in sequence_ids:
            harness.draft(active.engine.num_tokens, [23, 23], active.request.sequence_id, draw=active.num_commits)


def gains(harness):
    return [active.patience.gain for active in harness.verifier.sequences.all]


def test_all_wait_for_a_drafter_that_computes_where_they_do(tokenizer):
    harness = in_company(tokenizer, hand_over=5)
    gain = gains(harness)[0]
    assert start(harness) == pytest.approx(harness.now + gain * 0.01)
    assert harness.step(seconds=0.001) == []
    draft_for(harness, 1, 2, 3)
    assert start(harness) == AT_ONCE


def test_those_that_miss_drafts_are_waited_for_by_what_they_are_worth_to_all(tokenizer):
    harness = in_company(tokenizer, hand_over=5)
    draft_for(harness, 1, 2)
    gain = gains(harness)[0]
    assert start(harness) == pytest.approx(harness.now + gain / (3 + 2 * gain) * 0.01)


def test_a_prompt_does_not_end_the_wait_and_a_drafter_elsewhere_does(tokenizer):
    harness = in_company(tokenizer, hand_over=5)
    harness.open(PROMPT, 4, hand_over=5)
    assert harness.now < start(harness) < harness.now + 0.02
    assert start(in_company(tokenizer, hand_over=0)) == AT_ONCE


def test_a_drafter_that_is_gone_costs_a_few_waits(tokenizer):
    harness = in_company(tokenizer, hand_over=5)
    for _ in range(3):
        wake = harness.verifier.next_wake()
        harness.now = max(harness.now, wake)
        harness.step(seconds=0)
    assert start(harness) == AT_ONCE


def test_the_longest_wait_is_the_gateways(tokenizer):
    harness = in_company(tokenizer, hand_over=5, max_wait_us=1000)
    assert start(harness) == pytest.approx(harness.now + 0.001)
