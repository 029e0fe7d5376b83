"""The verifier as a whole, on a scripted model."""

import pytest

from slipstream.request import FinishReason, VerificationMode
from tests.scripted_runner import chain_law, random_law
from tests.verifier_svc.harness import REMOTE, VOCAB, Harness, plain_output, sparse
from verifier_svc.messages import StreamEnded

LAW = random_law(VOCAB)
PROMPT = [3, 4, 5, 6, 7]
GREEDY = {"temperature": 0.0, "max_tokens": 12}
SAMPLED = {"temperature": 1.0, "max_tokens": 12}


def feed_truth(harness, truth, prompt=PROMPT, sequence_id=1, count=20):
    """Drafts what will really come, from wherever the sequence is."""
    base = len(prompt) + len(harness.output(sequence_id))
    rest = truth[base - len(prompt) :]
    harness.draft(base, rest[:count], sequence_id, draw=base)


def test_a_draft_source_equal_to_the_target_gives_k_plus_one_tokens_per_pass(tokenizer):
    truth = plain_output(LAW, tokenizer, PROMPT, sampling={"max_tokens": 30})
    harness = Harness(LAW, tokenizer)
    harness.open(PROMPT, sampling={"max_tokens": 30}, num_draft_tokens=4)
    while harness.verifier.next_wake() is not None:
        feed_truth(harness, truth)
        harness.step()
    commits = harness.commits[1, 1]
    assert harness.output() == truth
    assert [len(commit.token_ids) for commit in commits] == [5] * 6
    assert [commit.num_accepted for commit in commits] == [4] * 6
    assert {commit.proposer for commit in commits} == {REMOTE}


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED])
@pytest.mark.parametrize("mode", VerificationMode)
def test_one_path_lasts_for_several_passes(tokenizer, sampling, mode):
    options = {"sampling": sampling, "mode": mode, "seed": 5}
    truth = plain_output(LAW, tokenizer, PROMPT, **options)
    harness = Harness(LAW, tokenizer)
    harness.open(PROMPT, num_draft_tokens=2, **options)
    harness.draft(len(PROMPT), truth[:9])
    harness.finish()
    assert harness.output() == truth
    assert [commit.num_accepted for commit in harness.commits[1, 1]][:3] == [2, 2, 2]


def test_wrong_drafts_change_nothing_and_their_kv_is_cut_off(tokenizer):
    truth = plain_output(LAW, tokenizer, PROMPT)
    harness = Harness(LAW, tokenizer)
    harness.open(PROMPT)
    while harness.verifier.next_wake() is not None:
        base = len(PROMPT) + len(harness.output())
        right = truth[base - len(PROMPT)] if base < len(PROMPT) + len(truth) else 0
        harness.draft(base, [right, *[(right + 1) % VOCAB] * 3], draw=base)
        harness.step()
        if harness.verifier.sequences:
            (active,) = harness.verifier.sequences.all
            assert len(active.engine.table.block_ids) == -(-active.engine.num_computed // 4)
    assert harness.output() == truth


def test_without_drafts_it_decodes_one_token_per_pass(tokenizer):
    harness = Harness(LAW, tokenizer)
    harness.open(PROMPT, num_draft_tokens=0)
    harness.finish()
    commits = harness.commits[1, 1]
    assert [len(commit.token_ids) for commit in commits] == [1] * 12
    assert [commit.base for commit in commits] == list(range(5, 17))
    assert not any(commit.num_draft_tokens or commit.proposer or commit.hit for commit in commits)


def test_many_sequences_at_once_say_what_each_says_alone(tokenizer):
    prompts = {i: [i, i + 1, *range(i, i + 9)] for i in range(1, 7)}
    alone = {i: plain_output(LAW, tokenizer, prompt, sampling=SAMPLED, seed=i) for i, prompt in prompts.items()}
    harness = Harness(LAW, tokenizer)
    for i, prompt in prompts.items():
        harness.open(prompt, i, sampling=SAMPLED, seed=i, stream=i % 2)
    harness.finish()
    assert {i: harness.output(i, stream=i % 2) for i in prompts} == alone


def test_the_same_seed_gives_the_same_text_and_parallel_samples_differ(tokenizer):
    one, same, other = (
        plain_output(LAW, tokenizer, PROMPT, sampling=SAMPLED, seed=9, sample_index=index) for index in (0, 0, 1)
    )
    assert one == same
    assert one != other


@pytest.mark.parametrize("num_blocks", [9, 12])
def test_preemption_by_recomputation_keeps_the_output(tokenizer, num_blocks):
    prompts = {i: [i, *range(6)] for i in range(1, 5)}
    options = {"sampling": {"temperature": 1.0, "max_tokens": 20}, "mode": VerificationMode.COUPLED}
    alone = {i: plain_output(LAW, tokenizer, prompt, **options) for i, prompt in prompts.items()}
    harness = Harness(LAW, tokenizer, num_blocks=num_blocks)
    for i, prompt in prompts.items():
        harness.open(prompt, i, **options)
        harness.draft(len(prompt), alone[i][:12], i)
    harness.finish()
    assert {i: harness.output(i) for i in prompts} == alone
    assert max(report.num_waiting for report in harness.reports) > 0
    assert harness.verifier.pool.num_used == 0


def test_a_preempted_sequence_keeps_its_drafts(tokenizer):
    truth = plain_output(LAW, tokenizer, PROMPT)
    harness = Harness(LAW, tokenizer)
    harness.open(PROMPT, num_draft_tokens=2)
    harness.draft(len(PROMPT), truth)
    harness.step()
    (active,) = harness.verifier.sequences.all
    active.engine.release()  # as the scheduler does
    active.engine.start()
    harness.step()
    assert harness.commits[1, 1][-1].num_accepted == 2


def test_a_prompt_longer_than_the_budget_is_computed_in_chunks(tokenizer):
    prompt = [i % VOCAB for i in range(40)]
    truth = plain_output(LAW, tokenizer, prompt)
    harness = Harness(LAW, tokenizer, max_num_batched_tokens=8)
    harness.open(prompt)
    harness.finish()
    assert harness.output() == truth
    assert [len(step[0].token_ids) for step in harness.runner.chunks[:5]] == [8] * 5


def test_a_second_equal_prompt_comes_from_the_prefix_cache(tokenizer):
    harness = Harness(LAW, tokenizer)
    harness.open(PROMPT * 3, 1)
    harness.finish()
    harness.open(PROMPT * 3, 2)
    harness.finish()
    first, second = harness.commits[1, 1], harness.commits[1, 2]
    assert (first[0].num_cached_tokens, second[0].num_cached_tokens) == (0, 12)
    assert all(commit.num_cached_tokens == 0 for commit in second[1:])
    assert harness.output(1) == harness.output(2)


def test_a_sequence_that_comes_back_after_its_stream_broke_finds_what_it_had_computed(tokenizer):
    harness = Harness(LAW, tokenizer)
    harness.open(PROMPT, sampling={"max_tokens": 40})
    for _ in range(20):
        harness.step()
    committed = (*PROMPT, *harness.output())
    harness.post(StreamEnded())
    harness.open(committed, stream=2, num_prompt_tokens=len(PROMPT), sampling={"max_tokens": 40})
    harness.step()
    (report,) = harness.reports[-1:]
    assert report.num_tokens <= harness.runner.kv_cache.block_size < len(committed) - len(PROMPT)
    harness.finish()
    assert [*harness.output(), *harness.output(stream=2)] == plain_output(
        LAW, tokenizer, PROMPT, sampling={"max_tokens": 40}
    )


def test_another_tenant_does_not_see_the_cache(tokenizer):
    harness = Harness(LAW, tokenizer)
    harness.open(PROMPT * 3, 1, tenant="a")
    harness.finish()
    harness.open(PROMPT * 3, 2, tenant="b")
    harness.finish()
    assert harness.commits[1, 2][0].num_cached_tokens == 0


def test_a_draft_that_came_before_the_sequence_was_ready_is_a_hit(tokenizer):
    truth = plain_output(LAW, tokenizer, PROMPT)
    harness = Harness(LAW, tokenizer)
    harness.open(PROMPT, max_wait_us=10_000)
    harness.step()
    harness.draft(6, truth[1:3])
    harness.step()
    assert (harness.commits[1, 1][1].hit, harness.commits[1, 1][1].num_accepted) == (True, 2)


def test_a_draft_that_was_waited_for_is_no_hit_and_the_wait_is_told(tokenizer):
    truth = plain_output(LAW, tokenizer, PROMPT)
    harness = Harness(LAW, tokenizer)
    harness.open(PROMPT, max_wait_us=10_000)
    harness.step(seconds=0)
    assert harness.step(seconds=0.004) == [], "it waits"
    harness.draft(6, truth[1:3])
    harness.step()
    commit = harness.commits[1, 1][1]
    assert (commit.hit, commit.num_accepted) == (False, 2)
    assert commit.wait_us == 4000


def test_a_step_reports_its_load(tokenizer):
    harness = Harness(LAW, tokenizer, max_num_seqs=1)
    harness.open(PROMPT, 1)
    harness.open(PROMPT, 2)
    harness.draft(5, [1, 2], 1)
    ((output,), report) = harness.step(), harness.reports[-1]
    assert output.commits.step is report
    assert (report.num_running, report.num_waiting, report.num_tokens) == (1, 1, 7)
    assert (report.kv_blocks_used, report.kv_blocks_total) == (harness.verifier.pool.num_used, 64)


def test_commits_of_one_step_go_in_one_message_per_stream(tokenizer):
    harness = Harness(LAW, tokenizer)
    for i in range(4):
        harness.open([i, *PROMPT], i, stream=i % 2)
    outputs = harness.step()
    assert [(output.stream, len(output.commits.commits)) for output in outputs] == [(0, 2), (1, 2)]


def test_a_sparse_draft_the_target_cannot_give_is_rejected_and_recovered(tokenizer):
    law = chain_law(VOCAB, lambda history: (history[-1] + 1) % VOCAB)
    harness = Harness(law, tokenizer)
    harness.open(PROMPT, sampling=SAMPLED)
    harness.draft(5, [sparse(8), sparse(2, [9], share=0.9)])
    harness.step()
    assert harness.commits[1, 1][0].token_ids == (8, 9)
    assert harness.commits[1, 1][0].num_accepted == 1


def test_a_context_limit_below_the_kv_pool_and_above_it_both_hold(tokenizer):
    harness = Harness(LAW, tokenizer, num_blocks=4, max_model_len=64)
    harness.open(PROMPT, sampling={"max_tokens": 50})
    harness.finish()
    assert len(PROMPT) + len(harness.output()) == 16
    assert harness.commits[1, 1][-1].finish_reason is FinishReason.LENGTH
