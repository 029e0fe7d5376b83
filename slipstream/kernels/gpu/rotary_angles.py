"""Cosines and sines of a step's positions on a GPU: one launch in place of ten operations on a few numbers."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from slipstream.kernels.gpu import launch
from slipstream.kernels.gpu.launch import wait_for_inputs


@triton.jit
def _rotary_angles_kernel(
    positions_ptr: tl.tensor,  # [num_positions]
    frequencies_ptr: tl.tensor,  # [HALF] fp32
    cos_ptr: tl.tensor,  # [num_positions, 2 HALF], out
    sin_ptr: tl.tensor,  # the same shape, out
    HALF: tl.constexpr,
    BLOCK: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    """angle = position frequency; cos twice side by side, sin once negated and once not."""
    wait_for_inputs(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    pairs = tl.arange(0, BLOCK)
    inside = pairs < HALF
    position = tl.load(positions_ptr + row).to(tl.float32)
    angles = position * tl.load(frequencies_ptr + pairs, mask=inside, other=0.0)
    cos, sin = tl.cos(angles), tl.sin(angles)
    left = row * 2 * HALF + pairs
    kind = cos_ptr.dtype.element_ty
    tl.store(cos_ptr + left, cos.to(kind), mask=inside)
    tl.store(cos_ptr + left + HALF, cos.to(kind), mask=inside)
    tl.store(sin_ptr + left, (-sin).to(kind), mask=inside)
    tl.store(sin_ptr + left + HALF, sin.to(kind), mask=inside)


def rotary_angles(
    positions: torch.Tensor,  # [...] integers
    frequencies: torch.Tensor,  # [head_dim / 2] fp32, radians per position
    dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor]:
    half = len(frequencies)
    cos = positions.new_empty(*positions.shape, 1, 2 * half, dtype=dtype)
    sin = torch.empty_like(cos)
    _rotary_angles_kernel[(positions.numel(),)](
        positions.contiguous(),
        frequencies,
        cos,
        sin,
        HALF=half,
        BLOCK=triton.next_power_of_2(half),
        num_warps=1,
        **launch.overlap_options(),
    )
    return cos, sin
