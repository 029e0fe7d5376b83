"""Matrix products of few rows on a GPU: the weights are read once, at the memory's pace, and nothing else matters."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from slipstream.kernels.gpu import launch
from slipstream.kernels.gpu.launch import bring_near, start_next, wait_for_previous

FEWEST_ROWS = 16  # the narrowest right operand of a tensor core's product
MOST_ROWS = 64
FEW_ROWS = 16  # up to which it is the faster one
NARROWEST, WIDEST = 4096, 132 * 64  # one wave of programs; elsewhere the library is as fast (docs/performance.md)
Shape = tuple[int, int, int]  # weight rows and depth of a tile, tiles in flight
FASTEST: Shape = (64, 128, 6)
LINE = tl.constexpr(64)  # 16-bit values that one prefetch brings
NEAR_LINES = 16  # of each weight row, brought near while the kernel before this one still runs; 0: none


@triton.jit
def _few_rows_linear_kernel(
    x_ptr: tl.tensor,  # [num_rows, depth]
    weight_ptr: tl.tensor,  # [width, depth]
    output_ptr: tl.tensor,  # [num_rows, width]
    num_rows: int,
    width: int,
    depth: int,
    ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    EVEN: tl.constexpr,
    NEAR_LINES: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    """output = x . weight^T; the weight's rows take the place of the left operand, of which there are enough."""
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    rows = tl.arange(0, ROWS)
    depths = tl.arange(0, BLOCK_K)
    in_width = columns < width
    sums = tl.zeros([BLOCK_N, ROWS], tl.float32)
    row_ptrs = weight_ptr + tl.where(in_width, columns, 0).to(tl.int64)[:, None] * depth
    if OVERLAP:
        start_next()
        if NEAR_LINES > 0:
            bring_near(row_ptrs + tl.minimum(tl.arange(0, NEAR_LINES) * LINE, depth - 1)[None, :])
        wait_for_previous()
    weight_ptrs = row_ptrs + depths[None, :]
    x_ptrs = x_ptr + rows[None, :] * depth + depths[:, None]
    for start in range(0, depth, BLOCK_K):
        if EVEN:
            weight = tl.load(weight_ptrs + start)
            x = tl.load(x_ptrs + start, mask=(rows < num_rows)[None, :], other=0.0)
        else:
            left = depths < depth - start
            weight = tl.load(weight_ptrs + start, mask=left[None, :], other=0.0)
            x = tl.load(x_ptrs + start, mask=(rows < num_rows)[None, :] & left[:, None], other=0.0)
        sums = tl.dot(weight, x, sums)
    outputs = output_ptr + rows[None, :] * width + columns[:, None]
    tl.store(outputs, sums.to(output_ptr.dtype.element_ty), mask=in_width[:, None] & (rows < num_rows)[None, :])


def suits(x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Whether `few_rows_linear` is the faster one for this product."""
    few = x.dim() == 2 and len(x) <= FEW_ROWS
    return few and x.element_size() == 2 and NARROWEST <= weight.shape[0] <= WIDEST


def few_rows_linear(
    x: torch.Tensor,  # [num_rows, depth], 16-bit, at most MOST_ROWS rows
    weight: torch.Tensor,  # [width, depth]
    shape: Shape = FASTEST,
) -> torch.Tensor:
    """x @ weight.T, [num_rows, width]."""
    (num_rows, depth), width = x.shape, weight.shape[0]
    assert num_rows <= MOST_ROWS, f"{num_rows} rows are not few"
    assert weight.is_contiguous()
    block_n, block_k, num_stages = shape
    output = x.new_empty(num_rows, width)
    _few_rows_linear_kernel[(triton.cdiv(width, block_n),)](
        x.contiguous(),
        weight,
        output,
        num_rows,
        width,
        depth,
        ROWS=max(triton.next_power_of_2(num_rows), FEWEST_ROWS),
        BLOCK_N=block_n,
        BLOCK_K=block_k,
        EVEN=depth % block_k == 0,
        NEAR_LINES=NEAR_LINES,
        num_stages=num_stages,
        num_warps=4,
        **launch.overlap_options(),
    )
    return output
