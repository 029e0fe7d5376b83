"""Positions and slots of tokens that are rows of their own, in one small launch on a GPU."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from slipstream.kernels.gpu import launch
from slipstream.kernels.gpu.launch import wait_for_inputs

BLOCK = 64  # rows of one program


@triton.jit
def _place_tokens_kernel(
    context_lens_ptr: tl.tensor,  # [num_rows] int64
    tables_ptr: tl.tensor,  # [num_rows, max_blocks]
    positions_ptr: tl.tensor,  # [num_rows] int64, out
    slots_ptr: tl.tensor,  # [num_rows] int64, out
    num_rows: int,
    max_blocks: int,
    BLOCK_SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    """position = context_len - 1; slot = table[position / size] * size + position % size; 0 and -1 for padding."""
    wait_for_inputs(OVERLAP)
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = rows < num_rows
    context_lens = tl.load(context_lens_ptr + rows, mask=inside, other=0)
    real = context_lens > 0
    positions = tl.where(real, context_lens - 1, 0)
    blocks = tl.load(tables_ptr + rows.to(tl.int64) * max_blocks + positions // BLOCK_SIZE, mask=real, other=0)
    slots = tl.where(real, blocks.to(tl.int64) * BLOCK_SIZE + positions % BLOCK_SIZE, -1)
    tl.store(positions_ptr + rows, positions, mask=inside)
    tl.store(slots_ptr + rows, slots, mask=inside)


def place_tokens(
    context_lens: torch.Tensor,  # [num_rows] int64
    block_tables: torch.Tensor,  # [num_rows, max_blocks]
    block_size: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Positions and slots, int64 [num_rows] each."""
    assert context_lens.is_contiguous()
    assert block_tables.is_contiguous()
    num_rows, max_blocks = block_tables.shape
    positions, slots = torch.empty_like(context_lens), torch.empty_like(context_lens)
    _place_tokens_kernel[(triton.cdiv(num_rows, BLOCK),)](
        context_lens, block_tables, positions, slots, num_rows, max_blocks,
        BLOCK_SIZE=block_size, BLOCK=BLOCK, num_warps=2, **launch.overlap_options(),
    )  # fmt: skip
    return positions, slots
