"""The feed-forward block in one phase: a program makes a few units and adds what they give to every column.

So units never leave their program. Of the columns that they add to there are many more than of units, and all programs
add to all of them; but those are additions, which nobody waits for, where a phase of its own would be waited for.
"""

from __future__ import annotations

import triton
import triton.language as tl

from slipstream.kernels.gpu.draft_step.accumulate import of_stream
from slipstream.kernels.gpu.draft_step.operands import Rows, Scratch, Weights, row_count, stream_ptr, tile_rows
from slipstream.kernels.gpu.draft_step.stream import load_norm, load_rows, load_stream, products


@triton.jit
def _units(tile: tl.tensor, SIZES: tl.constexpr) -> tl.tensor:
    return tile * SIZES.unit_tile + tl.arange(0, SIZES.unit_tile)


@triton.jit
def load_gate_up(
    weights: Weights, layer: tl.tensor, tile: tl.tensor, SIZES: tl.constexpr
) -> tuple[tl.tensor, tl.tensor]:
    """The weights of a tile's gates and of what these let through, in turns, and of the norm before."""
    weight_ptr = weights.gate_up + layer.to(tl.int64) * 2 * SIZES.inner * SIZES.hidden
    turn = tl.arange(0, 2 * SIZES.unit_tile)
    unit = tile * SIZES.unit_tile + turn // 2
    return (
        load_rows(weight_ptr, unit + turn % 2 * SIZES.inner, unit < SIZES.inner, SIZES),
        load_norm(weights.mlp_norm + layer * SIZES.hidden, SIZES),
    )


@triton.jit
def _load_down_part(
    weights: Weights, layer: tl.tensor, tile: tl.tensor, column: tl.tensor, SIZES: tl.constexpr
) -> tl.tensor:
    """[unit_tile, columns]."""
    INNER: tl.constexpr = SIZES.inner
    unit = _units(tile, SIZES)
    weight_ptr = weights.down + layer.to(tl.int64) * SIZES.hidden * INNER
    inside = (unit < INNER)[:, None] & (column < SIZES.hidden)[None, :]
    return tl.load(weight_ptr + column[None, :] * INNER + unit[:, None], mask=inside, other=0.0)


@triton.jit
def _columns(SIZES: tl.constexpr) -> tuple[tl.tensor, tl.tensor]:
    FIRST: tl.constexpr = SIZES.chunks * SIZES.depth
    return tl.arange(0, FIRST), tl.arange(0, SIZES.chunks * SIZES.rest) + FIRST


@triton.jit
def load_down(weights: Weights, layer: tl.tensor, tile: tl.tensor, SIZES: tl.constexpr) -> tuple[tl.tensor, tl.tensor]:
    """What a tile's units give to the columns, in two parts."""
    first, rest = _columns(SIZES)
    return (
        _load_down_part(weights, layer, tile, first, SIZES),
        _load_down_part(weights, layer, tile, rest, SIZES),
    )


@triton.jit
def _add_part(
    unit: tl.tensor,  # [tile_rows, unit_tile]
    down: tl.tensor,  # [unit_tile, N]
    layer: tl.tensor,
    row: tl.tensor,
    column: tl.tensor,
    rows: Rows,
    scratch: Scratch,
    SIZES: tl.constexpr,
) -> None:
    """To the next layer's stream: others still read this one's."""
    PRECISION: tl.constexpr = SIZES.precision
    place, inside = of_stream(row, column, rows, SIZES)
    added = tl.dot(unit, down, input_precision=PRECISION)
    tl.atomic_add(stream_ptr(layer + 1, scratch, SIZES) + place, added, mask=inside, sem="relaxed", scope="gpu")


@triton.jit
def add_feed_forward(
    gate_up: tl.tuple,  # from load_gate_up
    down: tl.tuple,  # from load_down
    layer: tl.tensor,
    rows: Rows,
    weights: Weights,
    scratch: Scratch,
    SIZES: tl.constexpr,
) -> None:
    """next residual += (silu(gate) * up) . down, of norm(residual): the share of some units."""
    first, rest = _columns(SIZES)
    for first_row in tl.range(0, row_count(rows), SIZES.tile_rows, num_stages=1):
        row, _ = tile_rows(first_row, rows, SIZES)
        stream = load_stream(gate_up[1], layer, first_row, False, rows, weights, scratch, SIZES, False)
        gate, up = products(stream, gate_up[0], SIZES, SIZES.unit_tile)
        unit = (gate / (1.0 + tl.exp(-gate)) * up).to(weights.qkv.dtype.element_ty)
        _add_part(unit, down[0], layer, row, first, rows, scratch, SIZES)
        _add_part(unit, down[1], layer, row, rest, rows, scratch, SIZES)
