"""Root-mean-square normalisation, with and without adding the residual first. The torch reference and CPU path."""

from __future__ import annotations

import torch
from torch.nn import functional


def rms_norm(
    x: torch.Tensor,  # [..., size]
    weight: torch.Tensor,  # [size]
    eps: float,
) -> torch.Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis, computed in fp32."""
    return functional.rms_norm(x, weight.shape, weight, eps)


def add_rms_norm(
    x: torch.Tensor,  # [..., size], what a block added
    residual: torch.Tensor,  # [..., size], the stream that it is added to
    weight: torch.Tensor,  # [size]
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The normalised sum, and the sum itself: the next residual."""
    residual = residual + x
    return rms_norm(residual, weight, eps), residual
