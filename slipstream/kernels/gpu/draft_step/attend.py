"""Attention of each row over its own paged context, in splits whose parts the next phase merges."""

from __future__ import annotations

import triton
import triton.language as tl

from slipstream.kernels.gpu.draft_step.operands import TILE_ROWS, Cache, Rows, Scratch


@triton.jit
def attend(
    layer: tl.tensor,
    first_task: tl.tensor,
    step: tl.tensor,
    rows: Rows,
    cache: Cache,
    scratch: Scratch,
    SIZES: tl.constexpr,
) -> None:
    """Tasks first_task, first_task + step, ...: one is a row, a KV head and a split of the row's context."""
    tasks = rows.num_rows * (SIZES.kv_heads * SIZES.splits)
    for task in range(first_task, tasks, step):
        pair = task // SIZES.splits
        _attend_split(
            layer, pair // SIZES.kv_heads, pair % SIZES.kv_heads, task % SIZES.splits, rows, cache, scratch, SIZES
        )


@triton.jit
def _attend_split(
    layer: tl.tensor,
    row: tl.tensor,
    kv_head: tl.tensor,
    split: tl.tensor,
    rows: Rows,
    cache: Cache,
    scratch: Scratch,
    SIZES: tl.constexpr,
) -> None:
    """partial = softmax(query . keys / sqrt(head_dim)) . values over one split; log_weights = log2 of the sum."""
    DIM: tl.constexpr = SIZES.head_dim
    KEYS: tl.constexpr = SIZES.keys
    SHARING: tl.constexpr = SIZES.heads // SIZES.kv_heads
    PRECISION: tl.constexpr = SIZES.precision
    context_len = tl.load(rows.context_lens + row).to(tl.int32)
    split_len = tl.cdiv(context_len, KEYS * SIZES.splits) * KEYS
    low = split * split_len
    high = tl.minimum(low + split_len, context_len)
    sharers = tl.arange(0, TILE_ROWS)
    dims = tl.arange(0, DIM)
    head = row * SIZES.heads + kv_head * SHARING + sharers
    real = sharers < SHARING
    query = tl.load(scratch.query + head[:, None] * DIM + dims[None, :], mask=real[:, None], other=0.0)
    scale = 1.4426950408889634 / tl.sqrt(DIM * 1.0)
    offset = layer.to(tl.int64) * cache.layer_stride + kv_head * DIM
    table_ptr = rows.tables + row * rows.max_blocks
    largest = tl.full([TILE_ROWS], float("-inf"), tl.float32)
    total = tl.zeros([TILE_ROWS], tl.float32)
    sums = tl.zeros([TILE_ROWS, DIM], tl.float32)
    for start in tl.range(low, high, KEYS, num_stages=3):
        position = start + tl.arange(0, KEYS)
        inside = position < high
        block = tl.load(table_ptr + position // SIZES.block_size, mask=inside, other=0).to(tl.int64)
        slot = (block * SIZES.block_size + position % SIZES.block_size) * (SIZES.kv_heads * DIM) + offset
        keys = tl.load(cache.key + slot[None, :] + dims[:, None], mask=inside[None, :], other=0.0)
        values = tl.load(cache.value + slot[:, None] + dims[None, :], mask=inside[:, None], other=0.0)
        scores = tl.dot(query, keys, input_precision=PRECISION) * scale
        scores = tl.where(inside[None, :], scores, float("-inf"))
        new_largest = tl.maximum(largest, tl.max(scores, 1))  # a turn always has a key: never -inf
        weight = tl.exp2(scores - new_largest[:, None])
        shrink = tl.exp2(largest - new_largest)
        total = total * shrink + tl.sum(weight, 1)
        sums = sums * shrink[:, None] + tl.dot(weight.to(values.dtype), values, input_precision=PRECISION)
        largest = new_largest
    safe_total = tl.where(total == 0, 1.0, total)
    target = head * SIZES.splits + split
    tl.store(scratch.partial + target[:, None] * DIM + dims[None, :], sums / safe_total[:, None], mask=real[:, None])
    tl.store(scratch.log_weights + target, largest + tl.log2(safe_total), mask=real)
