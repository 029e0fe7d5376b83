"""Self-attention of one layer: over the paged cache to serve, over whole sequences to train. Knows no requests."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from slipstream.kernels.attention import paged_attention
from slipstream.kernels.batch import ForwardBatch
from slipstream.kernels.low_rank import RowGroups
from slipstream.kernels.rotary import rotary, rotary_write_kv
from slipstream.layers.linear import Linear, make_summed_linear, pad_rows
from slipstream.layers.norm import RMSNorm
from slipstream.models.config import ModelConfig
from slipstream.parallel.ranks import ALONE, Ranks

CosSin = tuple[torch.Tensor, torch.Tensor]  # from RotaryEmbedding


class Attention(nn.Module):
    """Queries, keys and values from one fused product; grouped heads; optional norms of queries and keys.

    `config` is one rank's share: its heads only, whose last product all ranks add up.
    """

    def __init__(self, config: ModelConfig, dtype: torch.dtype, in_features: int = 0, ranks: Ranks = ALONE) -> None:
        """`in_features` is what the queries are made of, 0 = the hidden size."""
        super().__init__()
        self.num_heads, self.num_kv_heads, self.head_dim = config.num_heads, config.num_kv_heads, config.head_dim
        width = (config.num_heads + 2 * config.num_kv_heads) * config.head_dim
        self.qkv_proj = Linear(in_features or config.hidden_size, width, config.qkv_bias, dtype)
        attended = config.num_heads * config.head_dim
        self.o_proj = make_summed_linear(attended, config.hidden_size, config.output_bias, dtype, ranks)
        self.q_norm = RMSNorm(config.head_dim, config.rms_norm_eps, dtype) if config.qk_norm else None
        self.k_norm = RMSNorm(config.head_dim, config.rms_norm_eps, dtype) if config.qk_norm else None

    def forward(
        self,
        x: torch.Tensor,  # [num_rows, hidden]: the batch's tokens, then perhaps padding, which comes out as nonsense
        cos_sin: CosSin,
        key_cache: torch.Tensor,  # [num_blocks, block_size, num_kv_heads, head_dim]
        value_cache: torch.Tensor,  # the same shape
        batch: ForwardBatch,
    ) -> torch.Tensor:
        query_key, value = self._unrotated(x, batch.adapted)
        num_rows, num_tokens = x.shape[0], batch.token_ids.shape[0]
        if num_tokens < num_rows:
            query_key, value = query_key[:num_tokens], value[:num_tokens]
        query = rotary_write_kv(query_key, value, *cos_sin, key_cache, value_cache, batch.slot_mapping)
        attended = paged_attention(query, key_cache, value_cache, batch).flatten(-2)
        output: torch.Tensor = self.o_proj(pad_rows(attended, num_rows), batch.adapted)
        return output

    def forward_dense(
        self,
        x: torch.Tensor,  # [batch, time, hidden]
        cos_sin: CosSin,
        mask: torch.Tensor | None,  # broadcasts to [batch, heads, time, time], True = may attend; None = causal
    ) -> torch.Tensor:
        query, key, value = (tensor.transpose(1, 2) for tensor in self.project(x, cos_sin))
        attended = scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=mask is None, enable_gqa=self.num_heads != self.num_kv_heads
        )
        output: torch.Tensor = self.o_proj(attended.transpose(1, 2).flatten(-2))
        return output

    def project(self, x: torch.Tensor, cos_sin: CosSin) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Rotated queries, rotated keys, values: [..., heads, head_dim]."""
        query_key, value = self._unrotated(x)
        heads = (self.num_heads, self.num_kv_heads)
        query, key = rotary(query_key, *cos_sin).split_with_sizes(heads, dim=-2)
        return query, key, value

    def _unrotated(self, x: torch.Tensor, adapted: RowGroups | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Queries and keys side by side, and values: [..., heads, head_dim]."""
        heads, kv_heads = self.num_heads, self.num_kv_heads
        qkv: torch.Tensor = self.qkv_proj(x, adapted).unflatten(-1, (heads + 2 * kv_heads, self.head_dim))
        query_key, value = qkv.split_with_sizes((heads + kv_heads, kv_heads), dim=-2)
        if self.q_norm is not None and self.k_norm is not None:
            query, key = query_key.split_with_sizes((heads, kv_heads), dim=-2)
            query_key = torch.cat((self.q_norm(query), self.k_norm(key)), dim=-2)
        return query_key, value
