"""Cosines and sines that positions are rotated by. The torch reference."""

from __future__ import annotations

import torch

from slipstream.kernels.dispatch import fused


def rotary_angles(
    positions: torch.Tensor,  # [...] integers
    frequencies: torch.Tensor,  # [head_dim / 2] fp32, radians per position
    dtype: torch.dtype,
) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin [..., 1, head_dim], the first half of sin negated, as `rotary` wants it; angles are fp32."""
    if fused(positions):
        from slipstream.kernels.gpu import rotary_angles as gpu

        return gpu.rotary_angles(positions, frequencies, dtype)
    return rotary_angles_reference(positions, frequencies, dtype)


def rotary_angles_reference(
    positions: torch.Tensor, frequencies: torch.Tensor, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    angles = positions[..., None, None].float() * frequencies
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((cos, cos), -1).to(dtype), torch.cat((-sin, sin), -1).to(dtype)
