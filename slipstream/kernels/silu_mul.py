"""The gated activation of the feed-forward block. The torch reference and CPU path."""

from __future__ import annotations

import torch
from torch.nn import functional

from slipstream.kernels.dispatch import fused


def silu_mul(
    gate_up: torch.Tensor,  # [..., 2 * size]: gate, then up
) -> torch.Tensor:
    """silu(gate) * up, [..., size]."""
    if fused(gate_up):
        from slipstream.kernels.gpu import silu_mul as gpu

        return gpu.silu_mul(gate_up)
    return silu_mul_reference(gate_up)


def silu_mul_reference(gate_up: torch.Tensor) -> torch.Tensor:
    gate, up = gate_up.chunk(2, dim=-1)
    return functional.silu(gate) * up
