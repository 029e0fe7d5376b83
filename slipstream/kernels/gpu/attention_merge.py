"""Puts the splits of an attention launch together. Reads only those that have keys, however many there are places for.

A captured step is cut for the longest context it may meet; most of its splits are empty most of the time.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from slipstream.kernels.gpu import launch
from slipstream.kernels.gpu.attention_plan import LONGEST_SPLIT, AttentionPlan
from slipstream.kernels.gpu.launch import start_next, wait_for_previous

SPLITS_AT_ONCE = 16
LONGEST = tl.constexpr(LONGEST_SPLIT)


@triton.jit
def split_length(
    context_len: tl.tensor, num_splits: tl.tensor, most_usual: tl.tensor, BLOCK_N: tl.constexpr
) -> tl.tensor:
    """Keys of each split but the last; splits that would begin after the last key are empty.

    No more than `most_usual` have keys, unless they would be too long.
    """
    usual = tl.minimum(tl.cdiv(context_len, BLOCK_N * most_usual) * BLOCK_N, LONGEST)
    return tl.maximum(tl.cdiv(context_len, BLOCK_N * num_splits) * BLOCK_N, usual)


@triton.jit
def _merge_splits_kernel(
    partial_ptr: tl.tensor,  # [num_tokens, num_heads, num_splits, HEAD_DIM] fp32
    weights_ptr: tl.tensor,  # [num_tokens, num_heads, num_splits] fp32, log2 of each split's total weight
    query_starts_ptr: tl.tensor,  # [num_seqs + 1]
    context_lens_ptr: tl.tensor,  # [num_seqs]
    output_ptr: tl.tensor,  # [num_tokens, num_heads, HEAD_DIM]
    num_seqs: int,
    num_heads: int,
    num_splits: int,
    most_usual: int,
    HEAD_DIM: tl.constexpr,
    DIMS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    SEQUENCES: tl.constexpr,
    AT_ONCE: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    """output = sum of 2^weight partial / sum of 2^weight over the splits that have keys.

    Sizes are read before the wait: they are a step's inputs, written before its first kernel that waits for all others.
    """
    if OVERLAP:
        start_next()
    row = tl.program_id(0).to(tl.int64)
    index = tl.arange(0, SEQUENCES)
    inside = index < num_seqs
    ends = tl.load(query_starts_ptr + index + 1, mask=inside, other=0).to(tl.int32)
    contexts = tl.load(context_lens_ptr + index, mask=inside, other=0).to(tl.int32)
    sequence = tl.sum(((ends <= row // num_heads) & inside).to(tl.int32), 0)
    context_len = tl.sum(tl.where(index == sequence, contexts, 0), 0)
    num_used = tl.cdiv(context_len, tl.maximum(split_length(context_len, num_splits, most_usual, BLOCK_N), 1))
    dims = tl.arange(0, DIMS)
    largest, total = float("-inf"), 0.0
    merged = tl.zeros([DIMS], tl.float32)
    if OVERLAP:
        wait_for_previous()
    for start in range(0, num_used, AT_ONCE):
        splits = start + tl.arange(0, AT_ONCE)
        used = splits < num_used
        log_weights = tl.load(weights_ptr + row * num_splits + splits, mask=used, other=float("-inf"))
        partial = tl.load(
            partial_ptr + (row * num_splits + splits[:, None]) * HEAD_DIM + dims[None, :],
            mask=used[:, None] & (dims < HEAD_DIM)[None, :],
            other=0.0,
        )
        new_largest = tl.maximum(largest, tl.max(log_weights, 0))
        base = tl.where(new_largest == float("-inf"), 0.0, new_largest)
        weights, shrink = tl.exp2(log_weights - base), tl.exp2(largest - base)
        total = total * shrink + tl.sum(weights, 0)
        merged = merged * shrink + tl.sum(partial * weights[:, None], 0)
        largest = new_largest
    merged /= tl.where(total == 0, 1.0, total)
    tl.store(output_ptr + row * HEAD_DIM + dims, merged.to(output_ptr.dtype.element_ty), mask=dims < HEAD_DIM)


def merge_splits(
    partial: torch.Tensor,  # [num_tokens, num_heads, num_splits, head_dim] fp32
    weights: torch.Tensor,  # [num_tokens, num_heads, num_splits] fp32
    query_starts: torch.Tensor,  # [num_seqs + 1]
    context_lens: torch.Tensor,  # [num_seqs]
    output: torch.Tensor,  # [num_tokens, num_heads, head_dim], written; zeros for tokens of no sequence
    plan: AttentionPlan,
    block_n: int,  # keys that the splits are cut in multiples of
) -> None:
    num_tokens, num_heads, num_splits, head_dim = partial.shape
    _merge_splits_kernel[(num_tokens * num_heads,)](
        partial,
        weights,
        query_starts,
        context_lens,
        output,
        len(context_lens),
        num_heads,
        num_splits,
        plan.most_usual,
        HEAD_DIM=head_dim,
        DIMS=triton.next_power_of_2(head_dim),
        BLOCK_N=block_n,
        SEQUENCES=triton.next_power_of_2(len(context_lens)),
        AT_ONCE=min(SPLITS_AT_ONCE, num_splits),
        num_warps=2,
        **launch.overlap_options(),
    )
