"""Matrix products of few rows on a GPU: the weights are read once, at the memory's pace, and nothing else matters."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


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
) -> None:
    """output = x . weight^T; the weight's rows take the place of the left operand, of which there are enough."""
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    rows = tl.arange(0, ROWS)
    depths = tl.arange(0, BLOCK_K)
    in_width = columns < width
    sums = tl.zeros([BLOCK_N, ROWS], tl.float32)
    weight_ptrs = weight_ptr + tl.where(in_width, columns, 0).to(tl.int64)[:, None] * depth + depths[None, :]
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


def few_rows_linear(
    x: torch.Tensor,  # [num_rows, depth], 16-bit
    weight: torch.Tensor,  # [width, depth]
    block_n: int,
    block_k: int,
    num_stages: int,
    num_warps: int,
) -> torch.Tensor:
    """x @ weight.T, [num_rows, width]."""
    num_rows, depth = x.shape
    width = weight.shape[0]
    output = x.new_empty(num_rows, width)
    _few_rows_linear_kernel[(triton.cdiv(width, block_n),)](
        x,
        weight,
        output,
        num_rows,
        width,
        depth,
        ROWS=max(16, triton.next_power_of_2(num_rows)),
        BLOCK_N=block_n,
        BLOCK_K=block_k,
        EVEN=depth % block_k == 0,
        num_stages=num_stages,
        num_warps=num_warps,
    )
    return output
