"""Matrix products with weights, where few rows may have a kernel of their own."""

from __future__ import annotations

import torch
from torch.nn import functional

from slipstream.kernels.dispatch import fused


def linear(
    x: torch.Tensor,  # [..., depth]
    weight: torch.Tensor,  # [width, depth]
    bias: torch.Tensor | None = None,  # [width]
) -> torch.Tensor:
    """x @ weight.T + bias, [..., width]."""
    if bias is None and fused(x):
        from slipstream.kernels.gpu import linear as gpu

        if gpu.suits(x, weight):
            return gpu.few_rows_linear(x, weight)
    return functional.linear(x, weight, bias)
