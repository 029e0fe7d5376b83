"""Hashes name full blocks with all that stands before them, for each tenant apart."""

from slipstream.cache.block_pool import BlockPool
from slipstream.cache.prefix import PrefixHashes, find_prefix


def test_only_full_blocks_have_a_hash():
    assert len(PrefixHashes("t", 4).of(range(11), 11)) == 2
    assert len(PrefixHashes("t", 4).of(range(11), 7)) == 1


def test_a_hash_names_everything_before_its_block_too():
    one = PrefixHashes("t", 2).of([1, 2, 3, 4], 4)
    other = PrefixHashes("t", 2).of([9, 9, 3, 4], 4)
    assert one[1] != other[1]


def test_tenants_share_no_hash():
    assert PrefixHashes("a", 2).of([1, 2], 2) != PrefixHashes("b", 2).of([1, 2], 2)


def test_hashing_in_pieces_equals_hashing_at_once():
    tokens = [5, 6, 7]
    hashes = PrefixHashes("t", 2)
    hashes.of(tokens, 3)
    tokens += [8, 9, 1]
    assert hashes.of(tokens, 6) == PrefixHashes("t", 2).of(tokens, 6)


def test_the_cached_prefix_ends_at_the_first_missing_block():
    pool = BlockPool(3, 2)
    blocks = pool.allocate(3)
    hashes = PrefixHashes("t", 2).of(range(6), 6)
    pool.remember(blocks[0], hashes[0])
    pool.remember(blocks[2], hashes[2])
    assert find_prefix(pool, hashes) == blocks[:1]
