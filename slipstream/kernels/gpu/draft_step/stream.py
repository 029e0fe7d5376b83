"""Products of the normalised stream with some rows of a weight, whose whole depth one program multiplies.

The depth is cut into chunks, one for each warp: one after another they would wait for each other. It is taken in two
parts, each of a power of two of numbers, for what lies beyond the hidden size costs registers, too.
"""

from __future__ import annotations

import triton
import triton.language as tl

from slipstream.kernels.gpu.draft_step.operands import Rows, Scratch, Weights

PIECE = tl.constexpr(128)  # numbers that a warp's threads load at once


@triton.jit
def _part_of_rows(
    weight_ptr: tl.tensor,
    row: tl.tensor,  # [N]
    inside: tl.tensor,  # [N]
    FIRST: tl.constexpr,
    DEPTH: tl.constexpr,
    SIZES: tl.constexpr,
) -> tl.tensor:
    """[chunks, DEPTH, N], from the depth FIRST on."""
    HIDDEN: tl.constexpr = SIZES.hidden
    depth = tl.arange(0, SIZES.chunks)[:, None, None] * DEPTH + tl.arange(0, DEPTH)[None, :, None] + FIRST
    inside = inside[None, None, :] & (depth < HIDDEN)
    return tl.load(weight_ptr + row[None, None, :] * HIDDEN + depth, mask=inside, other=0.0)


@triton.jit
def load_rows(
    weight_ptr: tl.tensor,  # [width, hidden]
    row: tl.tensor,  # [N]
    inside: tl.tensor,  # [N]: which of them there are
    SIZES: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """Some rows of a weight, both parts of their depth."""
    return (
        _part_of_rows(weight_ptr, row, inside, 0, SIZES.depth, SIZES),
        _part_of_rows(weight_ptr, row, inside, SIZES.chunks * SIZES.depth, SIZES.rest, SIZES),
    )


@triton.jit
def _depths(FIRST: tl.constexpr, DEPTH: tl.constexpr, SIZES: tl.constexpr) -> tl.tensor:
    """[1, pieces, PIECE]: of such a shape the compiler gives each warp whole rows, whose sums need no other warp."""
    PIECES: tl.constexpr = SIZES.chunks * DEPTH // PIECE
    return tl.arange(0, PIECES)[None, :, None] * PIECE + tl.arange(0, PIECE)[None, None, :] + FIRST


@triton.jit
def _part_of_norm(norm_ptr: tl.tensor, depth: tl.tensor, SIZES: tl.constexpr) -> tl.tensor:
    return tl.load(norm_ptr + depth, mask=depth < SIZES.hidden, other=0.0).to(tl.float32)


@triton.jit
def load_norm(norm_ptr: tl.tensor, SIZES: tl.constexpr) -> tuple[tl.tensor, tl.tensor]:
    """A norm's weight, both parts of its depth."""
    return (
        _part_of_norm(norm_ptr, _depths(0, SIZES.depth, SIZES), SIZES),
        _part_of_norm(norm_ptr, _depths(SIZES.chunks * SIZES.depth, SIZES.rest, SIZES), SIZES),
    )


@triton.jit
def _part_of_stream(
    first_row: tl.tensor, rows: Rows, scratch: Scratch, depth: tl.tensor, SIZES: tl.constexpr
) -> tl.tensor:
    """[tile_rows, pieces, PIECE]."""
    row = first_row + tl.arange(0, SIZES.tile_rows)[:, None, None]
    inside = (depth < SIZES.hidden) & (row < rows.num_rows)
    return tl.load(scratch.residual + row * SIZES.hidden + depth, mask=inside, other=0.0)


@triton.jit
def _in_chunks(x: tl.tensor, weights: Weights, DEPTH: tl.constexpr, SIZES: tl.constexpr) -> tl.tensor:
    """[chunks, tile_rows, DEPTH], as products take it."""
    x = tl.reshape(x.to(weights.qkv.dtype.element_ty), [SIZES.tile_rows, SIZES.chunks, DEPTH])
    return tl.permute(x, [1, 0, 2])


@triton.jit
def load_stream(
    norm: tl.tuple,  # from load_norm
    first_row: tl.tensor,
    rows: Rows,
    weights: Weights,
    scratch: Scratch,
    SIZES: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """residual / rms * weight, both parts of its depth."""
    HIDDEN: tl.constexpr = SIZES.hidden
    x = _part_of_stream(first_row, rows, scratch, _depths(0, SIZES.depth, SIZES), SIZES)
    y = _part_of_stream(first_row, rows, scratch, _depths(SIZES.chunks * SIZES.depth, SIZES.rest, SIZES), SIZES)
    squares = tl.sum(tl.sum(x * x, 1) + tl.sum(y * y, 1), 1)
    scale = (1.0 / tl.sqrt(squares / HIDDEN + weights.eps))[:, None, None]
    return (
        _in_chunks(x * scale * norm[0], weights, SIZES.depth, SIZES),
        _in_chunks(y * scale * norm[1], weights, SIZES.rest, SIZES),
    )


@triton.jit
def products(
    stream: tl.tuple,  # from load_stream
    weight: tl.tuple,  # from load_rows
    SIZES: tl.constexpr,
    N: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """stream . weight of its even rows and of its odd ones: [tile_rows, N] fp32 each."""
    PRECISION: tl.constexpr = SIZES.precision
    sums = tl.dot(stream[0], weight[0], input_precision=PRECISION)
    sums = tl.dot(stream[1], weight[1], sums, input_precision=PRECISION)
    even, odd = tl.split(tl.reshape(tl.sum(sums, 0), [SIZES.tile_rows, N, 2]))
    return even, odd
