"""An EAGLE-3 head: one decoder layer that drafts from a target's features. Knows its equations; no files, no requests.

Token x[t + 1] goes in together with feature f[t], at position t, and the logits are for x[t + 2]:

    e = input_norm(embedding(x[t + 1]))          s = hidden_norm(f[t])
    h = r + attention(cat(e, s))                 r = s if norm_before_residual, else f[t]
    z = h + mlp(mlp_norm(h))                     logits = head(norm(z))

z stands for the feature of x[t + 1] that only the target could compute: the head feeds itself with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from slipstream.cache.kv_cache import KVCache
from slipstream.kernels.batch import ForwardBatch
from slipstream.layers.attention import Attention, CosSin
from slipstream.layers.linear import Linear, pack_weight, packed_linear
from slipstream.layers.mlp import MLP
from slipstream.layers.norm import RMSNorm
from slipstream.layers.rotary import RotaryEmbedding
from slipstream.models.eagle3_config import Eagle3Config


class Eagle3Layer(nn.Module):
    def __init__(self, config: Eagle3Config, dtype: torch.dtype) -> None:
        super().__init__()
        layer = config.layer
        self.input_norm, self.hidden_norm, self.mlp_norm = (
            RMSNorm(layer.hidden_size, layer.rms_norm_eps, dtype) for _ in range(3)
        )
        self.attention = Attention(layer, dtype, in_features=2 * layer.hidden_size)
        self.mlp = MLP(layer, dtype)
        self.norm_before_residual = config.norm_before_residual

    def forward(
        self,
        embedded: torch.Tensor,  # [num_tokens, hidden]
        features: torch.Tensor,  # [num_tokens, hidden]
        cos_sin: CosSin,
        kv: tuple[torch.Tensor, torch.Tensor],  # key cache and value cache
        batch: ForwardBatch,
    ) -> torch.Tensor:
        x, residual = self.attention_input(embedded, features)
        return self.after_attention(self.attention(x, cos_sin, *kv, batch), residual)

    def attention_input(self, embedded: torch.Tensor, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What attention sees, [..., 2 * hidden], and the residual stream."""
        normalised = self.hidden_norm(features)
        x = torch.cat((self.input_norm(embedded), normalised), -1)
        return x, normalised if self.norm_before_residual else features

    def after_attention(self, attended: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        hidden = residual + attended
        output: torch.Tensor = hidden + self.mlp(self.mlp_norm(hidden))
        return output


class Eagle3Model(nn.Module):
    """Weights are uninitialised until loaded. Positions are those of features: 0 belongs to f[0] and x[1]."""

    def __init__(self, config: Eagle3Config, dtype: torch.dtype) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Parameter(torch.empty(config.layer.vocab_size, config.hidden_size, dtype=dtype))
        self.layer = Eagle3Layer(config, dtype)
        self.norm = RMSNorm(config.hidden_size, config.layer.rms_norm_eps, dtype)
        self.head = nn.Parameter(torch.empty(config.draft_vocab_size, config.hidden_size, dtype=dtype))
        self.rotary = RotaryEmbedding(config.layer.rope, config.layer.head_dim)
        self._packed_head: torch.Tensor | None = None

    def forward(
        self,
        batch: ForwardBatch,
        features: torch.Tensor,  # [num_tokens, hidden], each of the token before
        kv_cache: KVCache,  # of one layer
    ) -> torch.Tensor:
        """z of every token, [num_tokens, hidden]; keys and values are written."""
        embedded = functional.embedding(batch.token_ids, self.embedding)
        cos_sin = self.rotary(batch.positions, self.embedding.dtype)
        z: torch.Tensor = self.layer(embedded, features, cos_sin, (kv_cache.keys[0], kv_cache.values[0]), batch)
        return z

    def logits(self, z: torch.Tensor) -> torch.Tensor:
        """fp32 logits [..., draft vocab] of outputs z [..., hidden]."""
        hidden = self.norm(z)
        if self._packed_head is not None:
            return packed_linear(hidden, self._packed_head, None).float()
        return functional.linear(hidden, self.head).float()

    def pack(self) -> None:
        """Trades weights for what a CPU reads twice as fast, inference only. See layers/linear.py and norm.py."""
        self._packed_head = pack_weight(self.head)
        for module in self.modules():
            if isinstance(module, Linear | RMSNorm):
                module.pack()


class FeatureProjection(nn.Module):
    """Makes one feature of the target's states of a token: `fc`, or for a head without it the last state as it is."""

    def __init__(self, config: Eagle3Config, dtype: torch.dtype, *, with_fc: bool = True) -> None:
        super().__init__()
        self.size = config.hidden_size  # of a feature
        self.fc = Linear(config.projected_size, config.hidden_size, False, dtype) if with_fc else None

    def forward(self, states: Sequence[torch.Tensor]) -> torch.Tensor:
        """`states` [..., target hidden], one for each tapped layer; [..., hidden]."""
        joined = torch.cat(tuple(states), -1)
        projected: torch.Tensor = joined if self.fc is None else self.fc(joined)
        return projected
