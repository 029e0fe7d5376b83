"""What attention and the feed-forward block add to the stream. Programs that share a sum add to it one by one.

So the order of additions is not fixed, and results differ in the last bits of fp32 from run to run.
"""

from __future__ import annotations

import triton
import triton.language as tl

from slipstream.kernels.gpu.draft_step.operands import Rows, Scratch, Weights, row_count, tile_rows


@triton.jit
def _add_to_residual(
    added: tl.tensor,  # [tile_rows, N] fp32
    row: tl.tensor,
    column: tl.tensor,
    rows: Rows,
    scratch: Scratch,
    SIZES: tl.constexpr,
) -> None:
    inside = (row < rows.num_rows)[:, None] & (column < SIZES.hidden)[None, :]
    target = scratch.residual + row[:, None] * SIZES.hidden + column[None, :]
    tl.atomic_add(target, added, mask=inside, sem="relaxed", scope="gpu")


@triton.jit
def _output_tile(tile: tl.tensor, SIZES: tl.constexpr) -> tuple[tl.tensor, tl.tensor]:
    """The head that a tile multiplies, and the columns [output_tile] that it adds to."""
    TILES: tl.constexpr = (SIZES.hidden + SIZES.output_tile - 1) // SIZES.output_tile
    return tile // TILES, tile % TILES * SIZES.output_tile + tl.arange(0, SIZES.output_tile)


@triton.jit
def load_output(weights: Weights, layer: tl.tensor, tile: tl.tensor, SIZES: tl.constexpr) -> tl.tensor:
    """[head_dim, output_tile]."""
    DEPTH: tl.constexpr = SIZES.heads * SIZES.head_dim
    head, column = _output_tile(tile, SIZES)
    depth = head * SIZES.head_dim + tl.arange(0, SIZES.head_dim)
    inside = (column < SIZES.hidden) & (head + tl.zeros_like(column) < SIZES.heads)
    weight_ptr = weights.output + layer.to(tl.int64) * SIZES.hidden * DEPTH
    return tl.load(weight_ptr + column[None, :] * DEPTH + depth[:, None], mask=inside[None, :], other=0.0)


@triton.jit
def _merged(head: tl.tensor, row: tl.tensor, exists: tl.tensor, scratch: Scratch, SIZES: tl.constexpr) -> tl.tensor:
    """Attention of one head [tile_rows, head_dim] from its splits: sum of 2^weight partial / sum of 2^weight."""
    split = (row * SIZES.heads + head)[:, None] * SIZES.splits + tl.arange(0, SIZES.splits)[None, :]
    dims = tl.arange(0, SIZES.head_dim)[None, None, :]
    log_weight = tl.load(scratch.log_weights + split, mask=exists[:, None], other=0.0)
    partial = tl.load(
        scratch.partial + split[:, :, None] * SIZES.head_dim + dims, mask=exists[:, None, None], other=0.0
    )
    largest = tl.max(log_weight, 1)
    weight = tl.exp2(log_weight - tl.where(largest == float("-inf"), 0.0, largest)[:, None])
    total = tl.sum(weight, 1)
    return tl.sum(partial * weight[:, :, None], 1) / tl.where(total == 0, 1.0, total)[:, None]


@triton.jit
def add_output(
    weight: tl.tensor,  # from load_output
    tile: tl.tensor,
    rows: Rows,
    scratch: Scratch,
    SIZES: tl.constexpr,
) -> None:
    """residual += attended . weight, one head's share."""
    PRECISION: tl.constexpr = SIZES.precision
    head, column = _output_tile(tile, SIZES)
    for first_row in tl.range(0, row_count(rows), SIZES.tile_rows, num_stages=1):
        row, exists = tile_rows(first_row, rows, SIZES)
        attended = _merged(head, row, exists, scratch, SIZES).to(weight.dtype)
        _add_to_residual(tl.dot(attended, weight, input_precision=PRECISION), row, column, rows, scratch, SIZES)


@triton.jit
def _down_tile(tile: tl.tensor, SIZES: tl.constexpr) -> tuple[tl.tensor, tl.tensor]:
    """The units [down_depth] that a tile adds up, and its columns [down_tile]."""
    TILES: tl.constexpr = (SIZES.hidden + SIZES.down_tile - 1) // SIZES.down_tile
    depth = tile // TILES * SIZES.down_depth + tl.arange(0, SIZES.down_depth)
    return depth, tile % TILES * SIZES.down_tile + tl.arange(0, SIZES.down_tile)


@triton.jit
def load_down(weights: Weights, layer: tl.tensor, tile: tl.tensor, SIZES: tl.constexpr) -> tl.tensor:
    """[down_depth, down_tile]."""
    INNER: tl.constexpr = SIZES.inner
    depth, column = _down_tile(tile, SIZES)
    weight_ptr = weights.down + layer.to(tl.int64) * SIZES.hidden * INNER
    inside = (depth < INNER)[:, None] & (column < SIZES.hidden)[None, :]
    return tl.load(weight_ptr + column[None, :] * INNER + depth[:, None], mask=inside, other=0.0)


@triton.jit
def add_down(
    weight: tl.tensor,  # from load_down
    tile: tl.tensor,
    rows: Rows,
    scratch: Scratch,
    SIZES: tl.constexpr,
) -> None:
    """residual += activated . weight, the share of some units."""
    PRECISION: tl.constexpr = SIZES.precision
    INNER: tl.constexpr = SIZES.inner
    depth, column = _down_tile(tile, SIZES)
    for first_row in tl.range(0, row_count(rows), SIZES.tile_rows, num_stages=1):
        row, exists = tile_rows(first_row, rows, SIZES)
        inside = exists[:, None] & (depth < INNER)[None, :]
        x = tl.load(scratch.activated + row[:, None] * INNER + depth[None, :], mask=inside, other=0.0)
        _add_to_residual(tl.dot(x, weight, input_precision=PRECISION), row, column, rows, scratch, SIZES)
