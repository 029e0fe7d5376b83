"""RMS normalisation with a learned scale. Knows the kernel, nothing of where it stands in the model."""

from __future__ import annotations

import torch
from torch import nn

from slipstream.kernels.rms_norm import add_rms_norm, mirror, mirrored_rms_norm, rms_norm


class RMSNorm(nn.Module):
    """Scales the last axis to unit root mean square, then by `weight`."""

    def __init__(self, size: int, eps: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size, dtype=dtype))
        self.eps = eps
        self._mirrored_weight: torch.Tensor | None = None

    def pack(self) -> None:
        """From now on as CPUs do it fastest, inference only."""
        self._mirrored_weight = mirror(self.weight.detach())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self._mirrored_weight is not None:
            return mirrored_rms_norm(x, self._mirrored_weight, self.eps)
        return rms_norm(x, self.weight, self.eps)

    def add(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The normalised x + residual, and x + residual."""
        if self._mirrored_weight is not None:
            residual = residual + x
            return mirrored_rms_norm(residual, self._mirrored_weight, self.eps), residual
        return add_rms_norm(x, residual, self.weight, self.eps)
