"""The gated feed-forward block of one layer. Knows nothing of tokens or positions."""

from __future__ import annotations

import torch
from torch import nn

from slipstream.kernels.low_rank import RowGroups
from slipstream.kernels.silu_mul import silu_mul
from slipstream.layers.linear import Linear, make_summed_linear
from slipstream.models.config import ModelConfig
from slipstream.parallel.ranks import ALONE, Ranks


class MLP(nn.Module):
    """down(silu(gate(x)) * up(x)), gate and up from one fused product; `config` is one rank's share of the units."""

    def __init__(self, config: ModelConfig, dtype: torch.dtype, ranks: Ranks = ALONE) -> None:
        super().__init__()
        self.gate_up_proj = Linear(config.hidden_size, 2 * config.intermediate_size, config.mlp_bias, dtype)
        self.down_proj = make_summed_linear(config.intermediate_size, config.hidden_size, config.mlp_bias, dtype, ranks)

    def forward(self, x: torch.Tensor, adapted: RowGroups | None = None) -> torch.Tensor:
        output: torch.Tensor = self.down_proj(silu_mul(self.gate_up_proj(x, adapted)), adapted)
        return output
