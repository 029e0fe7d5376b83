"""Queries, keys and values of the normalised stream: rotated, and stored where attention looks for them."""

from __future__ import annotations

import triton
import triton.language as tl

from slipstream.kernels.gpu.draft_step.operands import Cache, Rows, Scratch, Weights, row_count, tile_rows
from slipstream.kernels.gpu.draft_step.stream import load_norm, load_rows, load_stream, products


@triton.jit
def _tile(tile: tl.tensor, SIZES: tl.constexpr) -> tuple[tl.tensor, tl.tensor]:
    """The head that a tile is of (queries, keys, values), and its first pair in it."""
    TILES: tl.constexpr = SIZES.head_dim // 2 // SIZES.pair_tile
    return tile // TILES, tile % TILES * SIZES.pair_tile


@triton.jit
def load_qkv(weights: Weights, layer: tl.tensor, tile: tl.tensor, SIZES: tl.constexpr) -> tuple[tl.tensor, tl.tensor]:
    """The weights of a tile's pairs, first and second halves in turns, and of the norm before."""
    WIDTH: tl.constexpr = (SIZES.heads + 2 * SIZES.kv_heads) * SIZES.head_dim
    weight_ptr = weights.qkv + layer.to(tl.int64) * WIDTH * SIZES.hidden
    head, pair = _tile(tile, SIZES)
    turn = tl.arange(0, 2 * SIZES.pair_tile)
    row = head * SIZES.head_dim + pair + turn // 2 + turn % 2 * (SIZES.head_dim // 2)
    return (
        load_rows(weight_ptr, row, row < WIDTH, SIZES),
        load_norm(weights.input_norm + layer * SIZES.hidden, SIZES),
    )


@triton.jit
def _cache_offset(
    layer: tl.tensor,
    row: tl.tensor,
    position: tl.tensor,
    live: tl.tensor,
    rows: Rows,
    cache: Cache,
    SIZES: tl.constexpr,
) -> tl.tensor:
    """Where the first KV head of each row's token lies."""
    table_ptr = rows.tables + row * rows.max_blocks
    block = tl.load(table_ptr + position // SIZES.block_size, mask=live, other=0).to(tl.int64)
    slot = block * SIZES.block_size + position % SIZES.block_size
    return slot * (SIZES.kv_heads * SIZES.head_dim) + layer.to(tl.int64) * cache.layer_stride


@triton.jit
def make_qkv(
    weight: tl.tuple,  # from load_qkv
    layer: tl.tensor,
    tile: tl.tensor,
    rows: Rows,
    weights: Weights,
    cache: Cache,
    scratch: Scratch,
    SIZES: tl.constexpr,
) -> None:
    """query, key, value = norm(residual) . weight; queries and keys rotated; keys and values into their slots."""
    HALF: tl.constexpr = SIZES.head_dim // 2
    head, pair = _tile(tile, SIZES)
    pairs = pair + tl.arange(0, SIZES.pair_tile)
    for first_row in tl.range(0, row_count(rows), SIZES.tile_rows, num_stages=1):
        row, exists = tile_rows(first_row, rows, SIZES)
        stream = load_stream(weight[1], first_row, rows, weights, scratch, SIZES)
        context_len = tl.load(rows.context_lens + row, mask=exists, other=0)
        position = tl.maximum(context_len - 1, 0)
        live = context_len > 0
        offset = _cache_offset(layer, row, position, live, rows, cache, SIZES)
        turned = exists[:, None] & (head + tl.zeros_like(pairs) < SIZES.heads + SIZES.kv_heads)[None, :]
        angle = position[:, None] * HALF + pairs[None, :]
        cos = tl.load(weights.cos + angle, mask=turned, other=1.0).to(tl.float32)
        sin = tl.load(weights.sin + angle, mask=turned, other=0.0).to(tl.float32)
        low, high = products(stream, weight[0], SIZES, SIZES.pair_tile)
        rotated = tl.join(low * cos - high * sin, high * cos + low * sin).to(weights.qkv.dtype.element_ty)
        place = (pairs[:, None] + tl.arange(0, 2)[None, :] * HALF)[None, :, :]
        if head < SIZES.heads:
            target = (row * SIZES.heads + head)[:, None, None].to(tl.int64) * SIZES.head_dim + place
            tl.store(scratch.query + target, rotated, mask=exists[:, None, None])
        else:
            kv_head = head - SIZES.heads
            if kv_head < SIZES.kv_heads:
                target = (offset + kv_head * SIZES.head_dim)[:, None, None] + place
                tl.store(cache.key + target, rotated, mask=live[:, None, None])
            else:
                target = (offset + (kv_head - SIZES.kv_heads) * SIZES.head_dim)[:, None, None] + place
                tl.store(cache.value + target, rotated, mask=live[:, None, None])
