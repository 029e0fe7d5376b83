"""The gated activation of the feed-forward block. The torch reference and CPU path."""

from __future__ import annotations

import torch
from torch.nn import functional


def silu_mul(
    gate_up: torch.Tensor,  # [..., 2 * size]: gate, then up
) -> torch.Tensor:
    """silu(gate) * up, [..., size]."""
    gate, up = gate_up.chunk(2, dim=-1)
    return functional.silu(gate) * up
