"""Who computes how much in a step, within budget and blocks, and who is preempted."""

import pytest

from slipstream.cache.block_pool import BlockPool
from slipstream.engine.prompt_pace import FixedPace
from slipstream.engine.scheduler import Scheduler
from slipstream.engine.sequence import EngineSequence
from slipstream.errors import Exhausted


def make_scheduler(**limits):
    return Scheduler(**{"max_num_seqs": 4, "max_num_batched_tokens": 32, "max_waiting": 8} | limits)


def make_sequence(pool, num_tokens, first=0, *, num_draft_tokens=0, max_len=64, tenant=""):
    tokens = range(first, first + num_tokens)
    return EngineSequence(pool, tokens, tenant=tenant, max_len=max_len, num_draft_tokens=num_draft_tokens)


def run_step(scheduler):
    """Computes what was scheduled, one new token for each share that completes."""
    shares = scheduler.schedule()
    for share in shares:
        share.sequence.note_computed(share.num_tokens)
        if share.completes:
            share.sequence.commit([0], 0)
    return shares


def test_a_long_prompt_is_computed_in_chunks_of_the_budget():
    scheduler = make_scheduler()
    scheduler.add(make_sequence(BlockPool(64, 4), 70, max_len=100))
    steps = [run_step(scheduler)[0] for _ in range(4)]
    assert [share.num_tokens for share in steps] == [32, 32, 6, 1]
    assert [share.completes for share in steps] == [False, False, True, True]


def test_decoding_goes_before_prompts_and_keeps_going_beside_them():
    pool, scheduler = BlockPool(64, 4), make_scheduler()
    first, second = make_sequence(pool, 4), make_sequence(pool, 60, 100)
    scheduler.add(first)
    run_step(scheduler)
    scheduler.add(second)
    shares = run_step(scheduler)
    assert [(share.sequence, share.num_tokens) for share in shares] == [(first, 1), (second, 31)]
    shares = run_step(scheduler)
    assert [(share.sequence, share.num_tokens) for share in shares] == [(first, 1), (second, 29)]


def test_a_prompt_beside_decoding_sequences_is_computed_in_smaller_chunks_and_alone_in_whole_ones():
    pool, scheduler = BlockPool(64, 4), make_scheduler(pace=FixedPace(10))
    decoding, prompt = make_sequence(pool, 4, num_draft_tokens=2), make_sequence(pool, 60, 100, max_len=100)
    scheduler.add(decoding)
    run_step(scheduler)
    scheduler.add(prompt)
    for _ in range(2):
        shares = {share.sequence: share for share in run_step(scheduler)}
        assert (shares[decoding].num_draft_tokens, shares[prompt].num_tokens) == (2, 10)
    scheduler.remove(decoding)
    (share,) = run_step(scheduler)
    assert share.num_tokens == 32


def test_every_running_sequence_gets_its_token_however_many_drafts_are_allowed():
    pool, scheduler = BlockPool(64, 4), make_scheduler(max_num_batched_tokens=8)
    for i in range(4):
        scheduler.add(make_sequence(pool, 2, 10 * i, num_draft_tokens=30))
    run_step(scheduler)
    run_step(scheduler)
    shares = run_step(scheduler)
    assert [(share.num_tokens, share.num_draft_tokens) for share in shares] == [(1, 1)] * 4


def test_drafts_leave_waiting_prompts_half_of_the_spare_budget():
    pool, scheduler = BlockPool(64, 4), make_scheduler()
    decoding, prompt = make_sequence(pool, 2, num_draft_tokens=31), make_sequence(pool, 40, 100)
    scheduler.add(decoding)
    run_step(scheduler)
    scheduler.add(prompt)
    shares = scheduler.schedule()
    assert [share.num_draft_tokens for share in shares] == [15, 0]
    assert shares[1].num_tokens == 16


def test_more_than_the_queue_holds_is_refused():
    pool, scheduler = BlockPool(64, 4), make_scheduler(max_num_seqs=2, max_waiting=1)
    for i in range(3):
        scheduler.add(make_sequence(pool, 2, 10 * i))
    with pytest.raises(Exhausted, match="try again later"):
        scheduler.add(make_sequence(pool, 2, 90))
    assert scheduler.num_waiting == 3


def test_when_blocks_run_out_drafts_go_before_anyone_is_preempted():
    pool, scheduler = BlockPool(4, 4), make_scheduler()
    for i in range(2):
        scheduler.add(make_sequence(pool, 7, 10 * i, num_draft_tokens=4))
    run_step(scheduler)
    shares = scheduler.schedule()
    assert [share.num_draft_tokens for share in shares] == [0, 0]
    assert len(scheduler.running) == 2


def test_when_blocks_run_out_the_newest_is_preempted_and_comes_back_first():
    pool, scheduler = BlockPool(4, 4), make_scheduler(max_num_seqs=2)
    old, new, late = make_sequence(pool, 7), make_sequence(pool, 7, 10), make_sequence(pool, 2, 20)
    for sequence in (old, new, late):
        scheduler.add(sequence)
    run_step(scheduler)
    run_step(scheduler)
    assert {share.sequence for share in scheduler.schedule()} == {old}
    assert new.num_computed == 0
    assert scheduler.num_waiting == 2
    scheduler.remove(old)
    assert next(iter(scheduler.schedule())).sequence is new


def test_an_older_prompt_takes_blocks_from_a_newer_sequence_that_decodes():
    pool, scheduler = BlockPool(6, 4), make_scheduler(max_num_batched_tokens=8)
    old, new = make_sequence(pool, 15, max_len=24), make_sequence(pool, 4, 50)
    scheduler.add(old)
    scheduler.add(new)
    for _ in range(9):
        shares = run_step(scheduler)
        assert all(share.sequence in scheduler.running for share in shares)
        assert old in [share.sequence for share in shares]
    assert new.num_computed == 0


def test_removing_frees_all_kv_whether_running_or_waiting():
    pool, scheduler = BlockPool(8, 4), make_scheduler(max_num_seqs=1)
    running, waiting = make_sequence(pool, 6), make_sequence(pool, 6, 10)
    scheduler.add(running)
    scheduler.add(waiting)
    run_step(scheduler)
    scheduler.remove(waiting)
    scheduler.remove(running)
    assert pool.num_used == 0
    assert scheduler.schedule() == []


def test_a_budget_below_one_token_per_sequence_is_refused():
    with pytest.raises(ValueError, match="max_num_batched_tokens is 3"):
        make_scheduler(max_num_batched_tokens=3)


def test_sequences_of_one_prompt_compute_it_once():
    pool, scheduler = BlockPool(64, 4), make_scheduler()
    for _ in range(4):
        scheduler.add(make_sequence(pool, 19))
    first = run_step(scheduler)
    assert [share.num_tokens for share in first] == [19]
    assert [share.num_tokens for share in run_step(scheduler)] == [1, 3, 3, 3], "only what is past the last full block"
    assert [sequence.num_cached for sequence in scheduler.running] == [0, 16, 16, 16]


def test_who_waits_for_a_prompt_that_is_being_computed_holds_up_nobody_else():
    pool, scheduler = BlockPool(64, 4), make_scheduler(max_num_batched_tokens=12)
    long, same, other = make_sequence(pool, 30), make_sequence(pool, 30), make_sequence(pool, 3, 50)
    for sequence in (long, same, other):
        scheduler.add(sequence)
    steps = [[share.sequence for share in run_step(scheduler)] for _ in range(4)]
    assert steps == [[long], [long], [long, other], [long, other, same]]
    assert same.num_cached == 28


def test_who_waits_for_a_prompt_goes_on_alone_when_that_one_leaves():
    pool, scheduler = BlockPool(64, 4), make_scheduler(max_num_batched_tokens=8)
    long, same = make_sequence(pool, 20), make_sequence(pool, 20)
    scheduler.add(long)
    scheduler.add(same)
    run_step(scheduler)
    scheduler.remove(long)
    assert [share.sequence for share in run_step(scheduler)] == [same]
    assert same.num_cached == 8


def test_tenants_get_places_in_turns_however_many_one_has_waiting():
    pool, scheduler = BlockPool(64, 4), make_scheduler(max_num_seqs=3)
    flood = [make_sequence(pool, 2, 10 * i, tenant="flood") for i in range(5)]
    late = [make_sequence(pool, 2, 100 + 10 * i, tenant="late") for i in range(2)]
    for sequence in flood[:2]:
        scheduler.add(sequence)
    run_step(scheduler)
    for sequence in (*flood[2:], *late):
        scheduler.add(sequence)
    run_step(scheduler)
    assert list(scheduler.running) == [*flood[:2], late[0]]
    scheduler.remove(flood[0])
    run_step(scheduler)
    assert list(scheduler.running) == [flood[1], late[0], flood[2]], "each has one: the older goes"
