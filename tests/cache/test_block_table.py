"""A sequence's blocks grow, shrink and fork without touching what others hold."""

import pytest

from slipstream.cache.block_pool import BlockPool, OutOfBlocks
from slipstream.cache.block_table import BlockTable


def test_it_grows_by_whole_blocks_and_only_when_needed():
    table = BlockTable(BlockPool(8, 4))
    table.grow(5)
    assert len(table.block_ids) == 2
    table.grow(8)
    assert len(table.block_ids) == 2
    table.grow(3)
    assert table.capacity == 8


def test_growing_beyond_the_pool_changes_nothing():
    pool = BlockPool(2, 4)
    table = BlockTable(pool)
    table.grow(4)
    with pytest.raises(OutOfBlocks):
        table.grow(13)
    assert len(table.block_ids) == 1
    assert pool.num_free == 1


def test_truncating_gives_back_blocks_past_the_last_token():
    pool = BlockPool(8, 4)
    table = BlockTable(pool)
    table.grow(16)
    kept = list(table.block_ids[:2])
    table.truncate(5)
    assert list(table.block_ids) == kept
    assert pool.num_used == 2


def test_a_fork_shares_full_blocks_and_copies_at_most_the_partial_one():
    pool = BlockPool(8, 4)
    table = BlockTable(pool)
    table.grow(10)
    copy, pairs = table.fork(6)
    assert list(copy.block_ids[:1]) == list(table.block_ids[:1])
    assert pairs == [(table.block_ids[1], copy.block_ids[1])]
    assert copy.block_ids[1] != table.block_ids[1]


def test_a_fork_at_a_block_border_copies_nothing():
    table = BlockTable(BlockPool(8, 4))
    table.grow(8)
    copy, pairs = table.fork(8)
    assert pairs == []
    assert list(copy.block_ids) == list(table.block_ids)


def test_a_fork_that_finds_no_block_changes_nothing():
    pool = BlockPool(2, 4)
    table = BlockTable(pool)
    table.grow(8)
    with pytest.raises(OutOfBlocks):
        table.fork(6)
    table.release()
    assert pool.num_free == 2


def test_parent_and_fork_may_be_released_in_either_order():
    pool = BlockPool(8, 4)
    parent = BlockTable(pool)
    parent.grow(8)
    copy, _ = parent.fork(6)
    parent.release()
    assert pool.num_used == 2
    copy.release()
    assert pool.num_used == 0
