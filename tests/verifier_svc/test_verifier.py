import pytest

from slipstream.errors import DeadlineExceeded, Exhausted, InvalidRequest, VocabularyMismatch
from slipstream.exchange import DraftToken, LawKind, SequenceFailure, Update
from slipstream.request import FinishReason, VerificationMode
from tests.scripted_runner import chain_law, random_law
from tests.verifier_svc.harness import REMOTE, VOCAB, Harness, plain_output, sparse
from verifier_svc.messages import Close, Refuse, StreamEnded

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


def test_another_tenant_does_not_see_the_cache(tokenizer):
    harness = Harness(LAW, tokenizer)
    harness.open(PROMPT * 3, 1, tenant="a")
    harness.finish()
    harness.open(PROMPT * 3, 2, tenant="b")
    harness.finish()
    assert harness.commits[1, 2][0].num_cached_tokens == 0


@pytest.mark.parametrize(
    "options, text",
    [
        ({"prompt": [1, VOCAB]}, f"token_ids holds {VOCAB}; it must be in 0..{VOCAB - 1}"),
        ({"prompt": [-1]}, "token_ids holds -1"),
        ({"sampling": {"stop_token_ids": (99,)}}, "stop_token_ids holds 99"),
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


def test_a_duplicate_id_ends_that_sequence_alone_and_leaves_nothing_behind(tokenizer):
    harness = Harness(LAW, tokenizer)
    harness.open(PROMPT, 1)
    harness.open(PROMPT, 2)
    harness.step()
    harness.open(PROMPT, 1)
    harness.finish()
    assert "sequence 1 is open already" in str(harness.error(1))
    assert len(harness.output(1)) < 12
    assert len(harness.output(2)) == 12
    assert harness.verifier.pool.num_used == 0


def test_one_id_on_two_streams_is_two_sequences(tokenizer):
    harness = Harness(LAW, tokenizer)
    harness.open(PROMPT, 1, stream=1)
    harness.open(PROMPT[::-1], 1, stream=2)
    harness.finish()
    assert harness.output(1, stream=1) == plain_output(LAW, tokenizer, PROMPT)
    assert harness.output(1, stream=2) == plain_output(LAW, tokenizer, PROMPT[::-1])


def test_an_update_of_an_unknown_sequence_is_an_error_but_closing_or_drafting_for_it_is_not(tokenizer):
    harness = Harness(LAW, tokenizer)
    harness.post(Update(5, 1, 1, 1))
    harness.post(Close(6))
    harness.draft(3, [1], 7)
    harness.step()
    assert "sequence 5 is not open here" in str(harness.error(5))
    assert set(harness.failures) == {(1, 5)}
    assert harness.verifier.counters.dropped_drafts == {"unknown_sequence": 1}


def test_an_open_that_could_not_be_read_fails_by_its_id(tokenizer):
    harness = Harness(LAW, tokenizer)
    harness.post(Refuse(SequenceFailure(4, InvalidRequest("mode is 0; it must be 1 (ratio) or 2 (coupled)"))))
    harness.step()
    assert "mode is 0" in str(harness.error(4))


def test_new_bounds_apply_from_the_next_step(tokenizer):
    truth = plain_output(LAW, tokenizer, PROMPT)
    harness = Harness(LAW, tokenizer)
    harness.open(PROMPT, num_draft_tokens=4)
    harness.draft(len(PROMPT), truth)
    harness.step()
    harness.post(Update(1, 1, 0, 0))
    harness.step()
    harness.post(Update(1, 0, 0, 0))
    harness.step()
    assert [commit.num_draft_tokens for commit in harness.commits[1, 1]] == [4, 1, 0]


def test_closing_frees_everything_at_once(tokenizer):
    harness = Harness(LAW, tokenizer)
    harness.open(PROMPT)
    harness.step()
    assert harness.verifier.pool.num_used > 0
    harness.post(Close(1))
    assert harness.verifier.pool.num_used == 0
    assert harness.step() == []
    assert harness.verifier.next_wake() is None


def test_a_broken_stream_frees_what_was_opened_on_it_and_nothing_else(tokenizer):
    harness = Harness(LAW, tokenizer, max_num_seqs=2)
    for i in range(4):  # two of them still waiting
        harness.open(PROMPT, i, stream=1)
    harness.open(PROMPT, 9, stream=2)
    harness.step()
    harness.post(StreamEnded(), stream=1)
    harness.finish()
    assert len(harness.output(9, stream=2)) == 12
    assert harness.verifier.pool.num_used == 0


def test_opening_and_breaking_off_a_hundred_times_leaks_no_block(tokenizer):
    harness = Harness(LAW, tokenizer)
    for i in range(100):
        harness.open([i % VOCAB, *PROMPT], i, stream=i)
        harness.draft(6, [1, 2, 3], i, stream=i)
        harness.step()
        harness.post(StreamEnded(), stream=i)
    assert harness.verifier.pool.num_used == 0
    assert harness.verifier.pool.num_free == harness.verifier.pool.num_blocks


def test_a_deadline_ends_a_running_and_a_waiting_sequence(tokenizer):
    harness = Harness(LAW, tokenizer, max_num_seqs=1)
    harness.open(PROMPT, 1, deadline_ms=5)
    harness.open(PROMPT, 2, deadline_ms=3)
    for _ in range(10):
        harness.step()
    assert isinstance(harness.error(1), DeadlineExceeded)
    assert isinstance(harness.error(2), DeadlineExceeded)
    assert "5 ms" in str(harness.error(1))
    assert harness.output(2) == []
    assert harness.verifier.pool.num_used == 0


def test_a_deadline_ends_a_wait_for_drafts(tokenizer):
    harness = Harness(LAW, tokenizer)
    harness.open(PROMPT, 1, deadline_ms=20, max_wait_us=1_000_000)
    harness.step()
    assert harness.verifier.next_wake() == pytest.approx(100.02)
    harness.finish()
    assert isinstance(harness.error(1), DeadlineExceeded)


def test_more_than_the_queue_holds_is_refused_at_admission(tokenizer):
    harness = Harness(LAW, tokenizer, max_num_seqs=1, max_waiting=2)
    for i in range(5):
        harness.open(PROMPT, i)
    harness.finish()
    assert {key[1] for key in harness.failures} == {3, 4}
    assert isinstance(harness.error(3), Exhausted)
    assert all(len(harness.output(i)) == 12 for i in range(3))


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
        harness.open(PROMPT, i, stream=i % 2)
    outputs = harness.step()
    assert [(output.stream, len(output.commits.commits)) for output in outputs] == [(0, 2), (1, 2)]


def test_garbage_drafts_are_counted_by_reason(tokenizer):
    harness = Harness(LAW, tokenizer)
    harness.open(PROMPT)
    harness.draft(5, [])
    harness.draft(5, [VOCAB])
    harness.draft(5, [1], proposer="stranger")
    harness.draft(4, [1])
    harness.draft(9, [1])
    harness.draft(5, [DraftToken(1, LawKind.SPARSE)])
    assert harness.verifier.counters.dropped_drafts == {
        "empty": 1,
        "outside_vocabulary": 1,
        "unknown_proposer": 1,
        "stale": 2,
        "broken_law": 1,
    }


def test_passes_are_counted_by_tenant_and_proposer(tokenizer):
    truth = plain_output(LAW, tokenizer, PROMPT)
    harness = Harness(LAW, tokenizer)
    harness.open(PROMPT, tenant="acme", num_draft_tokens=3)
    harness.draft(5, truth[:3])
    harness.finish()
    drafted = harness.verifier.counters.passes["acme", REMOTE]
    plain = harness.verifier.counters.passes["acme", ""]
    assert (drafted.passes, drafted.draft_tokens, drafted.accepted_tokens, drafted.committed_tokens) == (1, 3, 3, 4)
    assert (plain.passes, plain.committed_tokens) == (8, 8)


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
