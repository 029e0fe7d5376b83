"""Root-mean-square normalisation, with and without adding the residual first. The torch reference and CPU path."""

from __future__ import annotations

import torch
from torch.nn import functional

from slipstream.kernels.dispatch import fused


def rms_norm(
    x: torch.Tensor,  # [..., size]
    weight: torch.Tensor,  # [size]
    eps: float,
) -> torch.Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis, computed in fp32."""
    if fused(x):
        from slipstream.kernels.gpu import rms_norm as gpu

        return gpu.rms_norm(x, weight, eps)
    return rms_norm_reference(x, weight, eps)


def rms_norm_reference(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return functional.rms_norm(x, weight.shape, weight, eps)


def mirror(
    weight: torch.Tensor,  # [size]
) -> torch.Tensor:
    """The weight as `mirrored_rms_norm` wants it, [2 * size]."""
    return torch.cat((weight, weight))


def mirrored_rms_norm(x: torch.Tensor, mirrored_weight: torch.Tensor, eps: float) -> torch.Tensor:
    """rms_norm through a fused operation that CPUs have: the layer norm of (x, -x), whose mean is 0.

    Torch computes rms_norm itself in a dozen small operations there, which cost twice as much.
    """
    size = x.shape[-1]
    both = torch.cat((x, -x), dim=-1)
    return functional.layer_norm(both, (2 * size,), mirrored_weight, None, eps)[..., :size]


def add_rms_norm(
    x: torch.Tensor,  # [..., size], what a block added
    residual: torch.Tensor,  # [..., size], the stream that it is added to
    weight: torch.Tensor,  # [size]
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The normalised sum, and the sum itself: the next residual."""
    if fused(x):
        from slipstream.kernels.gpu import rms_norm as gpu

        return gpu.add_rms_norm(x, residual, weight, eps)
    return add_rms_norm_reference(x, residual, weight, eps)


def add_rms_norm_reference(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    residual = residual + x
    return rms_norm_reference(residual, weight, eps), residual
