"""Root-mean-square normalisation on a GPU, with and without adding the residual first. One program per row."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from slipstream.kernels.gpu import launch
from slipstream.kernels.gpu.launch import wait_for_inputs


@triton.jit
def _rms_norm_kernel(
    x_ptr: tl.tensor,  # rows of `size` values, group_stride apart within a group of GROUP rows
    residual_ptr: tl.tensor,  # like the output
    weight_ptr: tl.tensor,  # [size]
    output_ptr: tl.tensor,  # [num_rows, size]
    sum_ptr: tl.tensor,  # [num_rows, size], the new residual
    size: int,
    outer_stride: int,
    inner_stride: int,
    inner_rows: int,
    eps: float,
    ADD: tl.constexpr,
    BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    """output = s / sqrt(mean(s^2) + eps) * weight with s = x (+ residual), in fp32."""
    wait_for_inputs(OVERLAP)
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < size
    start = (row // inner_rows).to(tl.int64) * outer_stride + (row % inner_rows) * inner_stride
    x = tl.load(x_ptr + start + columns, mask=inside, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + columns, mask=inside, other=0.0).to(tl.float32)
    target = row.to(tl.int64) * size + columns
    if ADD:
        x += tl.load(residual_ptr + target, mask=inside, other=0.0).to(tl.float32)
        rounded = x.to(sum_ptr.dtype.element_ty)
        tl.store(sum_ptr + target, rounded, mask=inside)
        x = rounded.to(tl.float32)  # the reference normalises the sum as it is stored
    scale = 1.0 / tl.sqrt(tl.sum(x * x, 0) / size + eps)
    tl.store(output_ptr + target, (x * scale * weight).to(output_ptr.dtype.element_ty), mask=inside)


def rms_norm(
    x: torch.Tensor,  # [..., size]; at most two leading axes need not be contiguous
    weight: torch.Tensor,  # [size]
    eps: float,
) -> torch.Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis, computed in fp32."""
    output = torch.empty_like(x, memory_format=torch.contiguous_format)
    _launch(x, output, weight, output, output, eps, add=False)
    return output


def add_rms_norm(
    x: torch.Tensor,  # [..., size]
    residual: torch.Tensor,  # [..., size]
    weight: torch.Tensor,  # [size]
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The normalised sum, and the sum itself: the next residual."""
    assert residual.shape == x.shape
    output = torch.empty_like(x, memory_format=torch.contiguous_format)
    total = torch.empty_like(output)
    _launch(x, residual.contiguous(), weight, output, total, eps, add=True)
    return output, total


def _launch(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    output: torch.Tensor,
    total: torch.Tensor,
    eps: float,
    *,
    add: bool,
) -> None:
    size = x.shape[-1]
    assert weight.shape == (size,), f"weight is {tuple(weight.shape)}; rows have {size} values"
    rows = x if x.dim() == 3 and x.stride(-1) == 1 else x.reshape(-1, 1, size)
    rows = rows if rows.stride(-1) == 1 else rows.contiguous()
    outer, inner = rows.shape[:2]
    if outer * inner == 0:
        return
    block = triton.next_power_of_2(size)
    _rms_norm_kernel[(outer * inner,)](
        rows,
        residual,
        weight,
        output,
        total,
        size,
        rows.stride(0),
        rows.stride(1),
        inner,
        eps,
        ADD=add,
        BLOCK=block,
        num_warps=min(max(block // 512, 1), 16),
        **launch.overlap_options(),
    )
