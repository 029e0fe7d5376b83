"""Blocks are handed out, shared, remembered by their contents and forgotten in order."""

import pytest

from slipstream.cache.block_pool import BlockPool, OutOfBlocks


def test_taking_more_than_is_free_changes_nothing():
    pool = BlockPool(3, 4)
    pool.allocate(2)
    with pytest.raises(OutOfBlocks, match="2 KV blocks wanted, 1 of 3 free"):
        pool.allocate(2)
    assert pool.num_free == 1


def test_a_shared_block_is_free_only_after_the_last_release():
    pool = BlockPool(1, 4)
    (block,) = pool.allocate(1)
    pool.share(block)
    pool.release(block)
    assert pool.num_used == 1
    pool.release(block)
    assert pool.num_used == 0


def test_a_released_block_with_a_hash_is_found_again_until_its_place_is_needed():
    pool = BlockPool(2, 4)
    first, second = pool.allocate(2)
    pool.remember(first, b"a")
    pool.release(first)
    pool.release(second)
    assert pool.num_free == 2
    pool.allocate(1)
    assert pool.find(b"a") == first, "a block without contents goes first"
    pool.allocate(1)
    assert pool.find(b"a") is None


def test_the_block_released_longest_ago_is_forgotten_first():
    pool = BlockPool(2, 4)
    first, second = pool.allocate(2)
    pool.remember(first, b"a")
    pool.remember(second, b"b")
    pool.release(second)
    pool.release(first)
    pool.allocate(1)
    assert pool.find(b"b") is None
    assert pool.find(b"a") == first


def test_an_idle_block_comes_back_with_its_contents():
    pool = BlockPool(1, 4)
    (block,) = pool.allocate(1)
    pool.remember(block, b"a")
    pool.release(block)
    pool.share(block)
    assert pool.num_free == 0
    assert pool.find(b"a") == block


def test_the_first_block_with_a_hash_keeps_it():
    pool = BlockPool(2, 4)
    first, second = pool.allocate(2)
    pool.remember(first, b"a")
    pool.remember(second, b"a")
    pool.release(second)
    assert pool.find(b"a") == first
    assert pool.allocate(1) == [second]


def test_releasing_twice_is_our_mistake():
    pool = BlockPool(1, 4)
    (block,) = pool.allocate(1)
    pool.release(block)
    with pytest.raises(AssertionError):
        pool.release(block)


def test_an_empty_pool_is_refused():
    with pytest.raises(ValueError, match="0 blocks"):
        BlockPool(0, 4)
