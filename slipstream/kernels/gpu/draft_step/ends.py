"""How a draft step begins and ends: token ids to the stream, the stream to normalised hidden states. A row a turn."""

from __future__ import annotations

import triton
import triton.language as tl

from slipstream.kernels.gpu.draft_step.operands import Rows, Scratch, Weights, row_count


@triton.jit
def _columns(SIZES: tl.constexpr) -> tuple[tl.tensor, tl.tensor]:
    WIDTH: tl.constexpr = 2 * SIZES.chunks * SIZES.depth  # a power of two, and no less than the hidden size
    column = tl.arange(0, WIDTH)
    return column, column < SIZES.hidden


@triton.jit
def embed(
    first: tl.tensor, step: tl.tensor, rows: Rows, weights: Weights, scratch: Scratch, SIZES: tl.constexpr
) -> None:
    """residual = embedding[token], rows first, first + step, ..."""
    column, inside = _columns(SIZES)
    for row in range(first, row_count(rows), step):
        token = tl.load(rows.token_ids + row).to(tl.int64)
        x = tl.load(weights.embedding + token * SIZES.hidden + column, mask=inside, other=0.0)
        tl.store(scratch.residual + row * SIZES.hidden + column, x.to(tl.float32), mask=inside)


@triton.jit
def finish(
    first: tl.tensor, step: tl.tensor, rows: Rows, weights: Weights, scratch: Scratch, SIZES: tl.constexpr
) -> None:
    """hidden = norm(residual), rows first, first + step, ..."""
    column, inside = _columns(SIZES)
    weight = tl.load(weights.norm + column, mask=inside, other=0.0).to(tl.float32)
    for row in range(first, row_count(rows), step):
        x = tl.load(scratch.residual + row * SIZES.hidden + column, mask=inside, other=0.0)
        scale = 1.0 / tl.sqrt(tl.sum(x * x, 0) / SIZES.hidden + weights.eps)
        target = scratch.hidden + row * SIZES.hidden + column
        tl.store(target, (x * scale * weight).to(weights.qkv.dtype.element_ty), mask=inside)
