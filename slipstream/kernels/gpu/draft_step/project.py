"""Products with the normalised stream: queries, keys and values, rotated and stored; gate and up, activated.

A product's depth is cut into chunks that are multiplied side by side: one after another they would wait for each other.
"""

from __future__ import annotations

import triton
import triton.language as tl

from slipstream.kernels.gpu.draft_step.operands import CHUNK, TILE_ROWS, Cache, Rows, Scratch, Weights, tile_rows


@triton.jit
def _load_columns(
    weight_ptr: tl.tensor, first: tl.tensor, second: tl.tensor, end: tl.tensor, SIZES: tl.constexpr, N: tl.constexpr
) -> tl.tensor:
    """[chunks, CHUNK, 2 * N]: N rows of the weight from `first` on, N from `second` on; zeros from `end` on."""
    CHUNKS: tl.constexpr = SIZES.chunks
    HIDDEN: tl.constexpr = SIZES.hidden
    depth = tl.arange(0, CHUNKS)[:, None, None] * CHUNK + tl.arange(0, CHUNK)[None, :, None]
    n = tl.arange(0, 2 * N)[None, None, :]
    column = tl.where(n < N, first + n, second + n - N)
    return tl.load(weight_ptr + column * HIDDEN + depth, mask=(depth < HIDDEN) & (column < end), other=0.0)


@triton.jit
def _scaled_rows(
    norm_ptr: tl.tensor, rows: Rows, weights: Weights, scratch: Scratch, first_row: tl.tensor, SIZES: tl.constexpr
) -> tuple[tl.tensor, tl.tensor]:
    """residual * weight [chunks, TILE_ROWS, CHUNK] as products take it, and 1 / rms [TILE_ROWS] for what comes out."""
    CHUNKS: tl.constexpr = SIZES.chunks
    HIDDEN: tl.constexpr = SIZES.hidden
    depth = tl.arange(0, CHUNKS)[:, None, None] * CHUNK + tl.arange(0, CHUNK)[None, None, :]
    row = first_row + tl.arange(0, TILE_ROWS)[None, :, None]
    inside = (depth < HIDDEN) & (row < rows.num_rows)
    x = tl.load(scratch.residual + row * HIDDEN + depth, mask=inside, other=0.0)
    weight = tl.load(norm_ptr + depth, mask=depth < HIDDEN, other=0.0).to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(tl.sum(x * x, 2), 0) / HIDDEN + weights.eps)
    return (x * weight).to(weights.qkv.dtype.element_ty), scale


@triton.jit
def _products(
    x: tl.tensor, weight: tl.tensor, scale: tl.tensor, SIZES: tl.constexpr, N: tl.constexpr
) -> tuple[tl.tensor, tl.tensor]:
    """Of the first N columns and of the second: [TILE_ROWS, N] fp32 each."""
    PRECISION: tl.constexpr = SIZES.precision
    both = tl.sum(tl.dot(x, weight, input_precision=PRECISION), 0) * scale[:, None]
    first, second = tl.split(tl.permute(tl.reshape(both, [TILE_ROWS, 2, N]), [0, 2, 1]))
    return first, second


@triton.jit
def _qkv_tile(tile: tl.tensor, SIZES: tl.constexpr) -> tuple[tl.tensor, tl.tensor]:
    """The head that a tile is of (queries, keys, values), and its first pair in it."""
    TILES: tl.constexpr = SIZES.head_dim // 2 // SIZES.pair_tile
    return tile // TILES, tile % TILES * SIZES.pair_tile


@triton.jit
def load_qkv(weights: Weights, layer: tl.tensor, tile: tl.tensor, SIZES: tl.constexpr) -> tl.tensor:
    """The weights of a tile's pairs: of their first halves, then of their second."""
    WIDTH: tl.constexpr = (SIZES.heads + 2 * SIZES.kv_heads) * SIZES.head_dim
    weight_ptr = weights.qkv + layer.to(tl.int64) * WIDTH * SIZES.hidden
    head, pair = _qkv_tile(tile, SIZES)
    low = head * SIZES.head_dim + pair
    return _load_columns(weight_ptr, low, low + SIZES.head_dim // 2, WIDTH, SIZES, SIZES.pair_tile)


@triton.jit
def _store_pairs(
    target_ptr: tl.tensor, low: tl.tensor, high: tl.tensor, chosen: tl.tensor, SIZES: tl.constexpr
) -> None:
    tl.store(target_ptr, low, mask=chosen[:, None])
    tl.store(target_ptr + SIZES.head_dim // 2, high, mask=chosen[:, None])


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
    weight: tl.tensor,  # from load_qkv
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
    N: tl.constexpr = SIZES.pair_tile
    head, pair = _qkv_tile(tile, SIZES)
    pairs = pair + tl.arange(0, N)
    norm_ptr = weights.input_norm + layer * SIZES.hidden
    for first_row in tl.range(0, rows.num_rows, TILE_ROWS, num_stages=1):
        row, exists = tile_rows(first_row, rows)
        context_len = tl.load(rows.context_lens + row, mask=exists, other=0)
        position = tl.maximum(context_len - 1, 0)
        turned = exists[:, None] & (head + tl.zeros_like(pairs) < SIZES.heads + SIZES.kv_heads)[None, :]
        angle = position[:, None] * HALF + pairs[None, :]
        cos = tl.load(weights.cos + angle, mask=turned, other=1.0).to(tl.float32)
        sin = tl.load(weights.sin + angle, mask=turned, other=0.0).to(tl.float32)
        x, scale = _scaled_rows(norm_ptr, rows, weights, scratch, first_row, SIZES)
        low, high = _products(x, weight, scale, SIZES, N)
        new_low = (low * cos - high * sin).to(weights.qkv.dtype.element_ty)
        new_high = (high * cos + low * sin).to(weights.qkv.dtype.element_ty)
        if head < SIZES.heads:
            target = (row * SIZES.heads + head)[:, None] * SIZES.head_dim + pairs[None, :]
            _store_pairs(scratch.query + target, new_low, new_high, exists, SIZES)
        else:
            live = context_len > 0
            offset = _cache_offset(layer, row, position, live, rows, cache, SIZES)[:, None] + pairs[None, :]
            kv_head = head - SIZES.heads
            if kv_head < SIZES.kv_heads:
                _store_pairs(cache.key + offset + kv_head * SIZES.head_dim, new_low, new_high, live, SIZES)
            else:
                offset += (kv_head - SIZES.kv_heads) * SIZES.head_dim
                _store_pairs(cache.value + offset, new_low, new_high, live, SIZES)


@triton.jit
def load_gate_up(weights: Weights, layer: tl.tensor, tile: tl.tensor, SIZES: tl.constexpr) -> tl.tensor:
    """The weights of a tile's units: of their gates, then of what these let through."""
    N: tl.constexpr = SIZES.inner_tile
    WIDTH: tl.constexpr = 2 * SIZES.inner  # of a last tile that is too wide, gates too many come and are not stored
    weight_ptr = weights.gate_up + layer.to(tl.int64) * WIDTH * SIZES.hidden
    return _load_columns(weight_ptr, tile * N, SIZES.inner + tile * N, WIDTH, SIZES, N)


@triton.jit
def make_activated(
    weight: tl.tensor,  # from load_gate_up
    layer: tl.tensor,
    tile: tl.tensor,
    rows: Rows,
    weights: Weights,
    scratch: Scratch,
    SIZES: tl.constexpr,
) -> None:
    """activated = silu(gate) * up, of norm(residual)."""
    INNER: tl.constexpr = SIZES.inner
    units = tile * SIZES.inner_tile + tl.arange(0, SIZES.inner_tile)
    norm_ptr = weights.mlp_norm + layer * SIZES.hidden
    for first_row in tl.range(0, rows.num_rows, TILE_ROWS, num_stages=1):
        row, exists = tile_rows(first_row, rows)
        x, scale = _scaled_rows(norm_ptr, rows, weights, scratch, first_row, SIZES)
        gate, up = _products(x, weight, scale, SIZES, SIZES.inner_tile)
        activated = gate / (1.0 + tl.exp(-gate)) * up
        target = scratch.activated + row[:, None] * INNER + units[None, :]
        inside = exists[:, None] & (units < INNER)[None, :]
        tl.store(target, activated.to(weights.qkv.dtype.element_ty), mask=inside)
