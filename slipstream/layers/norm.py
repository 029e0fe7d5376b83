"""RMS normalisation with a learned scale. Knows the kernel, nothing of where it stands in the model."""

from __future__ import annotations

import torch
from torch import nn

from slipstream.kernels.rms_norm import add_rms_norm, rms_norm


class RMSNorm(nn.Module):
    """Scales the last axis to unit root mean square, then by `weight`."""

    def __init__(self, size: int, eps: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size, dtype=dtype))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return rms_norm(x, self.weight, self.eps)

    def add(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The normalised x + residual, and x + residual."""
        return add_rms_norm(x, residual, self.weight, self.eps)
