import torch

from slipstream.engine.batch import LONGEST_PADDED_QUERY, Chunk, ForwardBatch

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
    assert group.rows.tolist() == [0, 1, 2, 3, 4, 4]
    assert group.block_ids.tolist() == [0, 1, 2, 3]
    assert group.mask.sum(-1).tolist() == [[5, 6, 7], [6, 7, 7]]


def test_sequences_of_unlike_lengths_are_not_padded_to_each_other() -> None:
    short, long = Chunk([1], 3, [0], 1), Chunk([1], 99, list(range(1, 26)), 1)
    assert [group.mask.shape for group in build(short, long, short).groups] == [(2, 1, 4), (1, 1, 100)]


def test_long_chunks_attend_alone() -> None:
    tokens = [1] * (LONGEST_PADDED_QUERY + 1)
    chunks = [Chunk(tokens, 0, list(range(i * 10, i * 10 + 9)), 1) for i in range(2)]
    assert [group.mask.shape[0] for group in build(*chunks).groups] == [1, 1]
