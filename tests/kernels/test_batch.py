"""Chunks laid out as a pass's tensors, and sequences grouped for attention."""

import torch

from slipstream.kernels.batch import LONGEST_PADDED_QUERY, Chunk, ForwardBatch, LoneSequence, SequenceGroup

CPU = torch.device("cpu")


def build(*chunks: Chunk) -> ForwardBatch:
    return ForwardBatch.build(chunks, 4, CPU)


def test_tokens_of_all_chunks_stand_one_after_another() -> None:
    batch = build(Chunk([7, 8, 9], 3, [5, 2], 2), Chunk((1,), 0, [6], 0), Chunk([4], 8, [1, 0, 3], 1))
    assert batch.token_ids.tolist() == [7, 8, 9, 1, 4]
    assert batch.positions.tolist() == [3, 4, 5, 0, 8]
    assert batch.slot_mapping.tolist() == [5 * 4 + 3, 2 * 4, 2 * 4 + 1, 6 * 4, 3 * 4]
    assert batch.query_starts.tolist() == [0, 3, 4, 5]
    assert batch.context_lens.tolist() == [6, 1, 9]
    assert batch.logits_rows.tolist() == [1, 2, 4]
    assert batch.block_tables.tolist() == [[5, 2, 0], [6, 0, 0], [1, 0, 3]]


def test_blocks_beyond_the_context_are_left_out() -> None:
    assert build(Chunk([1], 0, [9, 8, 7], 1)).block_tables.tolist() == [[9]]


def test_a_padded_query_repeats_the_sequences_last_token() -> None:
    (group,) = build(Chunk([1, 2, 3], 4, [0, 1], 1), Chunk([4, 5], 5, [2, 3], 1)).groups
    assert isinstance(group, SequenceGroup)
    assert group.rows.tolist() == [0, 1, 2, 3, 4, 4]
    assert group.block_ids.tolist() == [0, 1, 2, 3]
    assert group.visible.mask.sum(-1).tolist() == [[5, 6, 7], [6, 7, 7]]


def test_sequences_of_unlike_lengths_are_not_padded_to_each_other() -> None:
    short, long = Chunk([1], 3, [0], 1), Chunk([1], 99, list(range(1, 26)), 1)
    together, alone = build(short, long, short).groups
    assert isinstance(together, SequenceGroup)
    assert together.visible.mask.shape == (2, 1, 4)
    assert isinstance(alone, LoneSequence)
    assert alone.rows == slice(1, 2)


def test_kv_of_a_lone_sequence_is_gathered_only_if_its_blocks_lie_apart() -> None:
    (near,) = build(Chunk([1, 2], 4, [5, 6], 1)).groups
    assert isinstance(near, LoneSequence)
    assert near.slots == slice(20, 26)
    assert near.visible is not None
    assert near.visible.mask.sum(-1).tolist() == [[5, 6]]
    (apart,) = build(Chunk([1, 2], 4, [6, 5], 1)).groups
    assert isinstance(apart, SequenceGroup)
    assert apart.visible.mask.shape == (1, 2, 8)


def test_a_single_query_sees_all_keys_and_needs_no_mask() -> None:
    (group,) = build(Chunk([1], 5, [3, 4], 1)).groups
    assert isinstance(group, LoneSequence)
    assert group.visible is None


def test_long_chunks_attend_alone() -> None:
    tokens = [1] * (LONGEST_PADDED_QUERY + 1)
    chunks = [Chunk(tokens, 0, list(range(i * 10, i * 10 + 9)), 1) for i in range(2)]
    assert [type(group) for group in build(*chunks).groups] == [LoneSequence, LoneSequence]
