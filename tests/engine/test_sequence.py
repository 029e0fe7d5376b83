"""Which of a sequence is computed, cached or given back as it starts, commits and is released."""

import pytest

from slipstream.cache.block_pool import BlockPool, OutOfBlocks
from slipstream.engine.sequence import EngineSequence


def make_sequence(pool, tokens, *, tenant="", max_len=64, num_draft_tokens=4):
    return EngineSequence(pool, tokens, tenant=tenant, max_len=max_len, num_draft_tokens=num_draft_tokens)


def prefill(sequence):
    sequence.start()
    sequence.note_computed(sequence.num_uncomputed)


def test_a_new_sequence_holds_no_kv_until_it_starts():
    pool = BlockPool(8, 4)
    sequence = make_sequence(pool, range(6))
    assert pool.num_used == 0
    sequence.start()
    assert pool.num_used == 2
    assert sequence.num_uncomputed == 6


def test_after_a_partial_acceptance_the_table_ends_at_the_last_true_token():
    pool = BlockPool(8, 4)
    sequence = make_sequence(pool, range(6))
    prefill(sequence)
    sequence.table.grow(12)
    sequence.commit([6, 7], num_accepted=1)
    assert sequence.num_computed == 7
    assert sequence.num_uncomputed == 1
    assert sequence.table.capacity == 8


def test_an_equal_prefix_is_taken_from_the_cache_but_the_last_token_is_always_fed():
    pool = BlockPool(8, 4)
    first = make_sequence(pool, range(8))
    prefill(first)
    first.release()
    second = make_sequence(pool, range(8))
    second.start()
    assert second.num_cached == 4
    assert second.num_uncomputed == 4


def test_another_tenants_prefix_is_not_used():
    pool = BlockPool(8, 4)
    prefill(make_sequence(pool, range(8), tenant="a"))
    other = make_sequence(pool, range(8), tenant="b")
    other.start()
    assert other.num_cached == 0


def test_rejected_drafts_never_enter_the_prefix_cache():
    pool = BlockPool(16, 4)
    first = make_sequence(pool, range(4))
    prefill(first)
    first.table.grow(8)  # drafts 10, 11, 12, 13 were fed and all rejected
    first.commit([20], num_accepted=0)
    first.release()
    wrong = make_sequence(pool, [*range(4), 10, 11, 12, 13, 14])
    wrong.start()
    assert wrong.num_cached == 4


def test_committed_output_enters_the_prefix_cache():
    pool = BlockPool(16, 4)
    first = make_sequence(pool, range(4))
    prefill(first)
    first.table.grow(8)
    first.commit([4, 5, 6, 7, 8], num_accepted=4)
    second = make_sequence(pool, range(9))
    second.start()
    assert second.num_cached == 8


def test_a_block_whose_last_token_is_not_computed_yet_is_not_cached():
    pool = BlockPool(16, 4)
    first = make_sequence(pool, range(4), num_draft_tokens=8)
    prefill(first)
    first.table.grow(12)
    first.commit(range(4, 12), num_accepted=7)
    second = make_sequence(pool, range(13))
    second.start()
    assert second.num_cached == 8


def test_starting_without_room_changes_nothing():
    pool = BlockPool(3, 4)
    prefill(make_sequence(pool, range(4)))
    pool.allocate(1)
    with pytest.raises(OutOfBlocks):
        make_sequence(pool, range(12)).start()
    assert pool.num_used == 2


def test_starting_again_reuses_its_own_blocks_and_reports_the_first_hit_only():
    pool = BlockPool(8, 4)
    sequence = make_sequence(pool, range(9))
    prefill(sequence)
    sequence.release()
    sequence.start()
    assert sequence.num_computed == 8
    assert sequence.num_cached == 0


@pytest.mark.parametrize("left, most", [(1, 0), (2, 1), (4, 3), (5, 4), (9, 4)])
def test_no_more_drafts_than_could_still_be_output(left, most):
    sequence = make_sequence(BlockPool(8, 4), range(6), max_len=6 + left, num_draft_tokens=4)
    assert sequence.most_draft_tokens == most
