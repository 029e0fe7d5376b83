"""Positions and slots are those that the engine's batch has."""

from __future__ import annotations

import torch

from slipstream.kernels.batch import Chunk, ForwardBatch
from slipstream.kernels.prepare_inputs import prepare_inputs

CHUNKS = [Chunk([1] * 5, 6, [4, 9, 2], 1), Chunk([1], 0, [7], 1), Chunk([1] * 9, 3, [1, 0, 3], 1)]


def test_positions_and_slots_are_those_of_the_batch() -> None:
    batch = ForwardBatch.build(CHUNKS, 4, torch.device("cpu"))
    positions, slots = prepare_inputs(batch.query_starts, batch.context_lens, batch.block_tables, 4, 15)
    assert torch.equal(positions, batch.positions)
    assert torch.equal(slots, batch.slot_mapping)


def test_padding_tokens_have_no_slot() -> None:
    batch = ForwardBatch.build(CHUNKS, 4, torch.device("cpu"))
    positions, slots = prepare_inputs(batch.query_starts, batch.context_lens, batch.block_tables, 4, 20)
    assert positions[15:].tolist() == [0] * 5
    assert slots[15:].tolist() == [-1] * 5
