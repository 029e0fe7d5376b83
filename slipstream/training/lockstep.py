"""One decoding step of many rows that all stand at the same position. Knows a model's layers; nothing of chats.

The rows' keys and values lie in one dense cache, so attention needs neither block tables nor a mask.
"""

from __future__ import annotations

from typing import cast

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import embedding, scaled_dot_product_attention

from slipstream.layers.attention import CosSin
from slipstream.models.llama import DecoderLayer, LlamaModel

# Without cuDNN's, which builds a plan for every new length: half a minute over the first 768.
_BACKENDS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


class DenseCache:
    """Keys and values, [2, layers, batch, kv heads, length, head_dim]."""

    def __init__(self, model: LlamaModel, batch: int, length: int) -> None:
        config = model.config
        shape = (2, config.num_layers, batch, config.num_kv_heads, length, config.head_dim)
        self._data = torch.empty(shape, dtype=model.embedding.dtype, device=model.embedding.device)

    def layer(self, index: int, position: int) -> torch.Tensor:
        """[2, batch, kv heads, position + 1, head_dim]: what is there, and room for this position."""
        return self._data[:, index, :, :, : position + 1]


def decode(model: LlamaModel, token_ids: torch.Tensor, position: int, cache: DenseCache) -> torch.Tensor:
    """Feeds [batch] tokens that stand at `position`: hidden states [batch, hidden]. Writes the cache."""
    hidden = embedding(token_ids, model.embedding)
    cos_sin = model.rotary(torch.full((1,), position, device=token_ids.device), hidden.dtype)
    with sdpa_kernel(_BACKENDS, set_priority=True):
        for index, layer in enumerate(model.layers):
            hidden = _layer(cast(DecoderLayer, layer), hidden, cos_sin, cache.layer(index, position))
    return cast(torch.Tensor, model.norm(hidden))


def _layer(layer: DecoderLayer, hidden: torch.Tensor, cos_sin: CosSin, cache: torch.Tensor) -> torch.Tensor:
    query, key, value = layer.attention.project(layer.input_norm(hidden), cos_sin)
    cache[0, :, :, -1], cache[1, :, :, -1] = key, value
    # The query heads of one KV head become rows of one small attention: no key is read twice.
    grouped = query.reshape(len(query), key.shape[1], -1, query.shape[-1])
    mixed = scaled_dot_product_attention(grouped, cache[0], cache[1])
    hidden = hidden + layer.attention.o_proj(mixed.flatten(1))
    return cast(torch.Tensor, hidden + layer.mlp(layer.mlp_norm(hidden)))
