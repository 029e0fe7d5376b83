"""The feed-forward block's units, of the normalised stream. What they add to it is a phase of its own.

In one phase with it, every program would add to every column, and a hundred additions to one number take their time.
"""

from __future__ import annotations

import triton
import triton.language as tl

from slipstream.kernels.gpu.draft_step.operands import Rows, Scratch, Weights, row_count, tile_rows
from slipstream.kernels.gpu.draft_step.stream import load_norm, load_rows, load_stream, products


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
def make_activated(
    gate_up: tl.tuple,  # from load_gate_up
    tile: tl.tensor,
    rows: Rows,
    weights: Weights,
    scratch: Scratch,
    SIZES: tl.constexpr,
) -> None:
    """activated = silu(gate) * up, of norm(residual)."""
    INNER: tl.constexpr = SIZES.inner
    unit = tile * SIZES.unit_tile + tl.arange(0, SIZES.unit_tile)
    for first_row in tl.range(0, row_count(rows), SIZES.tile_rows, num_stages=1):
        row, exists = tile_rows(first_row, rows, SIZES)
        stream = load_stream(gate_up[1], first_row, rows, weights, scratch, SIZES)
        gate, up = products(stream, gate_up[0], SIZES, SIZES.unit_tile)
        activated = gate / (1.0 + tl.exp(-gate)) * up
        target = scratch.activated + row[:, None] * INNER + unit[None, :]
        inside = exists[:, None] & (unit < INNER)[None, :]
        tl.store(target, activated.to(weights.qkv.dtype.element_ty), mask=inside)
