"""How sequences come and go: ids, streams, bounds, deadlines; nothing of one sequence's end touches another."""

import pytest

from slipstream.errors import DeadlineExceeded, Exhausted, InvalidRequest
from slipstream.exchange import SequenceFailure, Update
from tests.scripted_runner import random_law
from tests.verifier_svc.harness import VOCAB, Harness, plain_output
from verifier_svc.messages import Close, Refuse, StreamEnded

LAW = random_law(VOCAB)
PROMPT = [3, 4, 5, 6, 7]


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


def test_what_comes_for_a_sequence_that_is_not_open_any_more_is_no_error(tokenizer):
    harness = Harness(LAW, tokenizer)
    harness.post(Update(5, 1, 1, 1))
    harness.post(Close(6))
    harness.draft(3, [1], 7)
    harness.step()
    assert not harness.failures
    assert harness.verifier.metrics.dropped_drafts.value("unknown_sequence") == 1


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


@pytest.mark.parametrize("num_samples", [1, 5])
def test_samples_of_a_prompt_compute_it_once_and_each_reads_as_it_does_alone(tokenizer, num_samples):
    prompt, block_size = [3 + i % 19 for i in range(27)], 4
    sampled = {"sampling": {"temperature": 1.0, "max_tokens": 6}, "seed": 8, "num_draft_tokens": 0}
    harness = Harness(LAW, tokenizer, block_size=block_size)
    for index in range(num_samples):
        harness.open(prompt, index, sample_index=index, **sampled)
    harness.finish()
    texts = [harness.output(index) for index in range(num_samples)]
    assert texts == [plain_output(LAW, tokenizer, prompt, sample_index=i, **sampled) for i in range(num_samples)]
    assert len({tuple(text) for text in texts}) == num_samples
    num_fed = sum(len(chunk.token_ids) for chunks in harness.runner.chunks for chunk in chunks)
    num_output = 5 * num_samples  # the last token of each is never fed
    assert num_fed == num_output + len(prompt) + (num_samples - 1) * (len(prompt) % block_size)
    assert harness.verifier.pool.num_used == 0
