"""Attention of each row over its own paged context, in splits whose parts the next phase merges."""

from __future__ import annotations

import triton
import triton.language as tl

from slipstream.kernels.gpu.draft_step.operands import Cache, Rows, Scratch, row_count
from slipstream.kernels.gpu.launch import bring_near


@triton.jit
def _split_of(
    task: tl.tensor, rows: Rows, SIZES: tl.constexpr
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """A task's row, KV head and split, and where in the row's context the split begins and ends."""
    pair, split = task // SIZES.splits, task % SIZES.splits
    row = pair // SIZES.kv_heads
    context_len = tl.load(rows.context_lens + row).to(tl.int32)
    context_len = tl.minimum(context_len, rows.max_blocks * SIZES.block_size)  # never beyond the table
    split_len = tl.cdiv(context_len, SIZES.keys * SIZES.splits) * SIZES.keys
    low = split * split_len
    return row, pair % SIZES.kv_heads, split, low, tl.minimum(low + split_len, context_len)


@triton.jit
def _slots(
    layer: tl.tensor,
    row: tl.tensor,
    kv_head: tl.tensor,
    start: tl.tensor,
    high: tl.tensor,
    rows: Rows,
    cache: Cache,
    SIZES: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """Where in the cache `keys` positions from `start` on lie, and which of them are before `high`."""
    position = start + tl.arange(0, SIZES.keys)
    inside = position < high
    table_ptr = rows.tables + row * rows.max_blocks
    block = tl.load(table_ptr + position // SIZES.block_size, mask=inside, other=0).to(tl.int64)
    slot = (block * SIZES.block_size + position % SIZES.block_size) * SIZES.kv_heads + kv_head
    return slot * SIZES.head_dim + layer.to(tl.int64) * cache.layer_stride, inside


@triton.jit
def bring_context_near(layer: tl.tensor, task: tl.tensor, rows: Rows, cache: Cache, SIZES: tl.constexpr) -> None:
    """Has the L2 cache fetch a task's first keys and values. What is written meanwhile it will have anyway."""
    row, kv_head, _, low, high = _split_of(task, rows, SIZES)
    slot, inside = _slots(layer, row, kv_head, low, high, rows, cache, SIZES)
    slot = tl.where(inside, slot, layer.to(tl.int64) * cache.layer_stride)
    bring_near(cache.key + slot)
    bring_near(cache.value + slot)


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
    tasks = row_count(rows) * (SIZES.kv_heads * SIZES.splits)
    for task in range(first_task, tasks, step):
        _attend_split(layer, task, rows, cache, scratch, SIZES)


@triton.jit
def _attend_split(
    layer: tl.tensor, task: tl.tensor, rows: Rows, cache: Cache, scratch: Scratch, SIZES: tl.constexpr
) -> None:
    """partial = softmax(query . keys / sqrt(head_dim)) . values over one split; log_weights = log2 of the sum."""
    DIM: tl.constexpr = SIZES.head_dim
    SHARERS: tl.constexpr = SIZES.sharers
    SHARING: tl.constexpr = SIZES.heads // SIZES.kv_heads
    PRECISION: tl.constexpr = SIZES.precision
    row, kv_head, split, low, high = _split_of(task, rows, SIZES)
    sharers = tl.arange(0, SHARERS)
    dims = tl.arange(0, DIM)
    head = row * SIZES.heads + kv_head * SHARING + sharers
    real = sharers < SHARING
    query = tl.load(scratch.query + head[:, None] * DIM + dims[None, :], mask=real[:, None], other=0.0)
    scale = 1.4426950408889634 / tl.sqrt(DIM * 1.0)
    largest = tl.full([SHARERS], float("-inf"), tl.float32)
    total = tl.zeros([SHARERS], tl.float32)
    sums = tl.zeros([SHARERS, DIM], tl.float32)
    for start in tl.range(low, high, SIZES.keys, num_stages=2):  # keys and values come at once
        slot, inside = _slots(layer, row, kv_head, start, high, rows, cache, SIZES)
        place = slot[:, None] + dims[None, :]  # of both, so that both are on their way at once
        keys = tl.load(cache.key + place, mask=inside[:, None], other=0.0)
        values = tl.load(cache.value + place, mask=inside[:, None], other=0.0)
        scores = tl.dot(query, tl.trans(keys), input_precision=PRECISION) * scale
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
