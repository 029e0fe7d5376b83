"""Positions and slots of a step's tokens on a GPU: one small launch in place of a dozen operations."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 128  # tokens of one program


@triton.jit
def _prepare_inputs_kernel(
    query_starts_ptr: tl.tensor,  # [num_seqs + 1]
    context_lens_ptr: tl.tensor,  # [num_seqs]
    tables_ptr: tl.tensor,  # [num_seqs, max_blocks]
    positions_ptr: tl.tensor,  # [num_tokens] int64, out
    slots_ptr: tl.tensor,  # [num_tokens] int64, out
    num_seqs: int,
    num_tokens: int,
    max_blocks: int,
    BLOCK_SIZE: tl.constexpr,
    SEQUENCES: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """position = context_len - end of its sequence + token; slot = table[position / size] * size + position % size."""
    tokens = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index = tl.arange(0, SEQUENCES)
    ends = tl.load(query_starts_ptr + 1 + index, mask=index < num_seqs, other=0)
    before = (ends[None, :] <= tokens[:, None]) & (index < num_seqs)[None, :]
    sequences = tl.sum(before.to(tl.int32), 1)  # how many sequences end before the token
    real = sequences < num_seqs
    own_ends = tl.load(query_starts_ptr + 1 + sequences, mask=real, other=0)
    context_lens = tl.load(context_lens_ptr + sequences, mask=real, other=0)
    positions = tl.where(real, (context_lens - own_ends + tokens).to(tl.int64), 0)
    blocks = tl.load(tables_ptr + sequences.to(tl.int64) * max_blocks + positions // BLOCK_SIZE, mask=real, other=0)
    slots = tl.where(real, blocks.to(tl.int64) * BLOCK_SIZE + positions % BLOCK_SIZE, -1)
    tl.store(positions_ptr + tokens, positions, mask=tokens < num_tokens)
    tl.store(slots_ptr + tokens, slots, mask=tokens < num_tokens)


def prepare_inputs(
    query_starts: torch.Tensor,  # [num_seqs + 1]
    context_lens: torch.Tensor,  # [num_seqs]
    block_tables: torch.Tensor,  # [num_seqs, max_blocks]
    block_size: int,
    num_tokens: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Positions and slots, int64 [num_tokens] each. A padding token stands at position 0 and has slot -1."""
    num_seqs = len(context_lens)
    assert all(x.is_contiguous() for x in (query_starts, context_lens, block_tables))
    positions = query_starts.new_empty(num_tokens, dtype=torch.int64)
    slots = torch.empty_like(positions)
    _prepare_inputs_kernel[(triton.cdiv(num_tokens, BLOCK),)](
        query_starts,
        context_lens,
        block_tables,
        positions,
        slots,
        num_seqs,
        num_tokens,
        block_tables.shape[1],
        BLOCK_SIZE=block_size,
        SEQUENCES=triton.next_power_of_2(num_seqs),
        BLOCK=BLOCK,
    )
    return positions, slots
