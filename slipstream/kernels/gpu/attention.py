"""Attention of new tokens over the paged KV cache on a GPU: verify passes and prompt chunks in one launch.

A tile is BLOCK_M rows, one per (query token, head) of one sequence and KV head, so that heads that share keys read them
once. Long contexts are cut into splits that run side by side and are merged by a second, small kernel.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from slipstream.kernels.batch import ForwardBatch
from slipstream.kernels.gpu import launch
from slipstream.kernels.gpu.attention_merge import merge_splits, split_length
from slipstream.kernels.gpu.attention_plan import AttentionPlan, plan_of
from slipstream.kernels.gpu.launch import bring_near, start_next, wait_for_previous

LOG2_E = tl.constexpr(1.4426950408889634)
NARROWEST = 16  # depth of a tensor core's product
LINE = tl.constexpr(64)  # 16-bit values that one prefetch brings
NEAR = True  # keys and values are brought near while the kernel before this one still runs


@triton.jit
def _find_sequence(
    query_starts_ptr: tl.tensor,
    context_lens_ptr: tl.tensor,
    tile: tl.tensor,
    num_seqs: tl.tensor,
    BLOCK_Q: tl.constexpr,
    SEQUENCES: tl.constexpr,
) -> tuple[tl.tensor, ...]:
    """A tile's sequence, that one's first token, number of tokens and context length, and the tile's first token in it.

    Sequence i owns tiles query_starts[i] // BLOCK_Q + i and on: always enough of them, sometimes one too many. All is
    read in one go and picked out in registers: loads that wait for each other are what a small launch is made of.
    """
    index = tl.arange(0, SEQUENCES)
    inside = index < num_seqs
    starts = tl.load(query_starts_ptr + index, mask=inside, other=0).to(tl.int32)
    ends = tl.load(query_starts_ptr + index + 1, mask=inside, other=0).to(tl.int32)
    contexts = tl.load(context_lens_ptr + index, mask=inside, other=0).to(tl.int32)
    owned = (starts // BLOCK_Q + index <= tile) & inside
    sequence = tl.sum(owned.to(tl.int32), 0) - 1
    chosen = index == sequence
    first = tl.sum(tl.where(chosen, starts, 0), 0)
    query_len = tl.sum(tl.where(chosen, ends, 0), 0) - first
    context_len = tl.sum(tl.where(chosen, contexts, 0), 0)
    return sequence, first, query_len, context_len, (tile - first // BLOCK_Q - sequence) * BLOCK_Q


@triton.jit
def _paged_attention_kernel(
    query_ptr: tl.tensor,  # [num_tokens, num_heads, HEAD_DIM]
    key_ptr: tl.tensor,  # [num_blocks, BLOCK_SIZE, num_kv_heads, HEAD_DIM]
    value_ptr: tl.tensor,  # the same shape
    tables_ptr: tl.tensor,  # [num_seqs, max_blocks]
    query_starts_ptr: tl.tensor,  # [num_seqs + 1]
    context_lens_ptr: tl.tensor,  # [num_seqs]
    output_ptr: tl.tensor,  # like query; with splits [num_tokens, num_heads, num_splits, HEAD_DIM] fp32
    weights_ptr: tl.tensor,  # with splits: [num_tokens, num_heads, num_splits] fp32, log2 of each split's total weight
    num_seqs: int,
    max_blocks: int,
    scale: float,  # log2(e) / sqrt(head_dim)
    num_kv_heads: int,
    num_splits: int,
    most_usual: int,
    SHARING: tl.constexpr,  # query heads per KV head
    HEAD_DIM: tl.constexpr,
    DIMS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    SEQUENCES: tl.constexpr,
    SPLIT: tl.constexpr,
    PRECISION: tl.constexpr,
    NEAR: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    """output = softmax(query . keys / sqrt(head_dim)) . values over the keys at or before each query's position.

    Before the wait it finds its keys, and has the cache fetch the first ones with their pages' addresses: most were
    written long ago. Sizes and tables are a step's inputs, written before its first kernel that waits for all others.
    """
    if OVERLAP:
        start_next()
    BLOCK_Q: tl.constexpr = BLOCK_M // SHARING
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    sequence, first, query_len, context_len, offset = _find_sequence(
        query_starts_ptr, context_lens_ptr, tl.program_id(0), num_seqs, BLOCK_Q, SEQUENCES
    )
    split_len = split_length(context_len, num_splits, most_usual, BLOCK_N)
    low = split * split_len
    table_ptr = tables_ptr + sequence.to(tl.int64) * max_blocks
    if OVERLAP:
        if NEAR:
            near = low + tl.arange(0, BLOCK_N)
            near_blocks = tl.load(table_ptr + near // BLOCK_SIZE, mask=near < context_len, other=0).to(tl.int64)
            near_slots = (near_blocks * BLOCK_SIZE + near % BLOCK_SIZE) * num_kv_heads + kv_head
            near_lines = near_slots[:, None] * HEAD_DIM + tl.arange(0, DIMS // LINE)[None, :] * LINE
            bring_near(key_ptr + near_lines)
            bring_near(value_ptr + near_lines)
        wait_for_previous()
    if (offset >= query_len) | (low >= context_len):
        return
    rows = tl.arange(0, BLOCK_M)
    dims = tl.arange(0, DIMS)
    row_tokens = offset + rows // SHARING
    row_valid = (row_tokens < query_len) & (rows < BLOCK_Q * SHARING)
    row_heads = (first + row_tokens).to(tl.int64) * num_kv_heads * SHARING + kv_head * SHARING + rows % SHARING
    row_mask = row_valid[:, None] & (dims < HEAD_DIM)[None, :]
    query = tl.load(query_ptr + row_heads[:, None] * HEAD_DIM + dims[None, :], mask=row_mask, other=0.0)
    row_positions = context_len - query_len + row_tokens

    high = min(low + split_len, context_len - query_len + min(offset + BLOCK_Q, query_len))
    largest = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    sums = tl.zeros([BLOCK_M, DIMS], tl.float32)
    for start in range(low, high, BLOCK_N):
        positions = start + tl.arange(0, BLOCK_N)
        inside = positions < high
        blocks = tl.load(table_ptr + positions // BLOCK_SIZE, mask=inside, other=0).to(tl.int64)
        slots = (blocks * BLOCK_SIZE + positions % BLOCK_SIZE) * num_kv_heads + kv_head
        keys = tl.load(
            key_ptr + slots[None, :] * HEAD_DIM + dims[:, None],
            mask=inside[None, :] & (dims < HEAD_DIM)[:, None],
            other=0.0,
        )
        values = tl.load(
            value_ptr + slots[:, None] * HEAD_DIM + dims[None, :],
            mask=inside[:, None] & (dims < HEAD_DIM)[None, :],
            other=0.0,
        )
        scores = tl.dot(query, keys, input_precision=PRECISION) * scale
        seen = inside[None, :] & (positions[None, :] <= row_positions[:, None])
        scores = tl.where(seen, scores, float("-inf"))
        new_largest = tl.maximum(largest, tl.max(scores, 1))
        base = tl.where(new_largest == float("-inf"), 0.0, new_largest)  # a row that sees nothing yet: no inf - inf
        weights = tl.exp2(scores - base[:, None])
        shrink = tl.exp2(largest - base)
        total = total * shrink + tl.sum(weights, 1)
        sums = sums * shrink[:, None]
        sums += tl.dot(weights.to(values.dtype), values, input_precision=PRECISION)
        largest = new_largest

    result = sums / tl.where(total == 0, 1.0, total)[:, None]
    if SPLIT:
        targets = row_heads * num_splits + split
        tl.store(output_ptr + targets[:, None] * HEAD_DIM + dims[None, :], result, mask=row_mask)
        tl.store(weights_ptr + targets, largest + tl.log2(tl.where(total == 0, 1.0, total)), mask=row_valid)
    else:
        targets = row_heads[:, None] * HEAD_DIM + dims[None, :]
        tl.store(output_ptr + targets, result.to(output_ptr.dtype.element_ty), mask=row_mask)


def paged_attention(
    query: torch.Tensor,  # [num_tokens, num_heads, head_dim], rotated
    key_cache: torch.Tensor,  # [num_blocks, block_size, num_kv_heads, head_dim], new tokens already written
    value_cache: torch.Tensor,  # the same shape
    batch: ForwardBatch,
) -> torch.Tensor:
    """softmax(query . keys / sqrt(head_dim)) . values over each token's own sequence up to itself, like `query`."""
    return attend_batch(query, key_cache, value_cache, batch, plan_of(query, key_cache, batch))


def attend_batch(
    query: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, batch: ForwardBatch, plan: AttentionPlan
) -> torch.Tensor:
    return attend(query, key_cache, value_cache, batch.block_tables, batch.query_starts, batch.context_lens, plan)


def attend(
    query: torch.Tensor,  # [num_tokens, num_heads, head_dim]
    key_cache: torch.Tensor,  # [num_blocks, block_size, num_kv_heads, head_dim]
    value_cache: torch.Tensor,  # the same shape
    block_tables: torch.Tensor,  # [num_seqs, max_blocks]
    query_starts: torch.Tensor,  # [num_seqs + 1]; a sequence without tokens is padding
    context_lens: torch.Tensor,  # [num_seqs]
    plan: AttentionPlan,
) -> torch.Tensor:
    """The launch itself, from tensors alone: rows of tokens that no sequence owns are left as they were allocated."""
    query = query.contiguous()
    num_tokens, num_heads, head_dim = query.shape
    _, block_size, kv_heads, _ = key_cache.shape
    assert all(x.is_contiguous() for x in (key_cache, value_cache, block_tables, query_starts, context_lens))
    assert num_heads % kv_heads == 0, f"{num_heads} heads do not share {kv_heads} KV heads evenly"
    output, splits = torch.empty_like(query), plan.num_splits
    split = splits > 1
    partial = query.new_empty(num_tokens, num_heads, splits, head_dim, dtype=torch.float32) if split else output
    weights = query.new_empty(num_tokens, num_heads, splits, dtype=torch.float32) if split else output
    dims, wide = max(triton.next_power_of_2(head_dim), NARROWEST), query.dtype == torch.float32
    num_seqs, sharing = len(context_lens), num_heads // kv_heads
    block_n = 16 if wide else (32 if dims > 128 else 64)
    tiles = num_tokens // (plan.block_m // sharing) + num_seqs
    _paged_attention_kernel[(tiles, kv_heads, splits)](
        query,
        key_cache,
        value_cache,
        block_tables,
        query_starts,
        context_lens,
        partial,
        weights,
        num_seqs,
        block_tables.stride(0),
        LOG2_E.value / math.sqrt(head_dim),
        kv_heads,
        splits,
        plan.most_usual,
        SHARING=sharing,
        HEAD_DIM=head_dim,
        DIMS=dims,
        BLOCK_SIZE=block_size,
        BLOCK_M=plan.block_m,
        BLOCK_N=block_n,
        SEQUENCES=triton.next_power_of_2(num_seqs),
        SPLIT=split,
        PRECISION="ieee" if wide else "tf32",
        NEAR=NEAR and not wide and dims >= LINE.value,
        num_warps=8 if plan.block_m >= 128 else 4,
        num_stages=plan.num_stages,
        **launch.overlap_options(),
    )
    if split:
        merge_splits(partial, weights, query_starts, context_lens, output, plan, block_n)
    return output
