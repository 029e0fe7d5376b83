"""Copies KV blocks on a GPU in one launch, all layers' keys and values at once."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

BLOCK = 1024  # words of one program's turn


@triton.jit
def _copy_blocks_kernel(
    words_ptr: tl.tensor,  # [num_parts, num_blocks, size] int32
    pairs_ptr: tl.tensor,  # [num_pairs, 2] int32
    num_blocks: int,
    size: int,
    BLOCK: tl.constexpr,
) -> None:
    """words[part, destination] = words[part, source] unless source < 0."""
    pair, part = tl.program_id(0), tl.program_id(1).to(tl.int64)
    source = tl.load(pairs_ptr + pair * 2).to(tl.int64)
    destination = tl.load(pairs_ptr + pair * 2 + 1).to(tl.int64)
    if source < 0:
        return
    part_ptr = words_ptr + part * num_blocks * size
    for start in range(0, size, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        words = tl.load(part_ptr + source * size + offsets, mask=offsets < size)
        tl.store(part_ptr + destination * size + offsets, words, mask=offsets < size)


def copy_blocks(
    blocks: torch.Tensor,  # [2, num_layers, num_blocks, ...] contiguous, written in place
    pairs: torch.Tensor,  # [num_pairs, 2] int32
) -> None:
    assert pairs.is_contiguous()
    num_parts, num_blocks = blocks.shape[0] * blocks.shape[1], blocks.shape[2]
    words = blocks.view(num_parts, num_blocks, -1).view(torch.int32)
    _copy_blocks_kernel[(len(pairs), num_parts)](words, pairs, num_blocks, words.shape[2], BLOCK=BLOCK, num_warps=4)
