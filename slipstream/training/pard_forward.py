"""A draft's pass over texts with masks behind them, chain by chain. Knows layers and the layout; no loss, no weights.

Gives what `LlamaModel.forward_dense` gives with the layout's `visible()`, of whose columns nearly none is ever seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import torch
from torch.nn.functional import embedding, scaled_dot_product_attention

from slipstream.layers.attention import CosSin
from slipstream.models.llama import DecoderLayer, LlamaModel
from slipstream.training.chain_attention import KeyValue, chain_attention
from slipstream.training.pard_layout import ParallelLayout


def into_attention(
    layer: DecoderLayer, hidden: torch.Tensor, cos_sin: CosSin
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Queries, keys, values [rows, packed length, heads, head_dim]."""
    return layer.attention.project(layer.input_norm(hidden), cos_sin)


def after_attention(layer: DecoderLayer, hidden: torch.Tensor, mixed: torch.Tensor) -> torch.Tensor:
    """`mixed` [rows, heads, packed length, head_dim]; [rows, packed length, hidden]."""
    hidden = hidden + layer.attention.o_proj(mixed.transpose(1, 2).flatten(-2))
    output: torch.Tensor = hidden + layer.mlp(layer.mlp_norm(hidden))
    return output


class LayerParts(NamedTuple):
    """What a layer does before and after attention; they may be compiled."""

    into_attention: Callable[[DecoderLayer, torch.Tensor, CosSin], tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = (
        into_attention
    )
    after_attention: Callable[[DecoderLayer, torch.Tensor, torch.Tensor], torch.Tensor] = after_attention


PLAIN: Final = LayerParts()


def packed_hidden(
    draft: LlamaModel,
    layout: ParallelLayout,
    token_ids: torch.Tensor,  # [rows, length]
    mask_token: int,
    parts: LayerParts = PLAIN,
) -> torch.Tensor:
    """[rows, packed length, hidden]"""
    packed = layout.pack(token_ids, mask_token)
    hidden = embedding(packed, draft.embedding)
    cos_sin = draft.rotary(layout.positions, hidden.dtype)
    for layer in draft.layers:
        assert isinstance(layer, DecoderLayer)
        query, key, value = (tensor.transpose(1, 2) for tensor in parts.into_attention(layer, hidden, cos_sin))
        mixed = _attend(query, key, value, layout.anchors, layout.sizes)
        hidden = parts.after_attention(layer, hidden, mixed)
    normalised: torch.Tensor = draft.norm(hidden)
    return normalised


def _attend(
    query: torch.Tensor,  # [rows, heads, packed length, head_dim]
    key: torch.Tensor,  # [rows, kv heads, packed length, head_dim]
    value: torch.Tensor,
    anchors: torch.Tensor,  # [packed length]
    sizes: tuple[int, ...],
) -> torch.Tensor:
    queries, keys, values = (tensor.split_with_sizes(list(sizes), dim=2) for tensor in (query, key, value))
    grouped = query.shape[1] != key.shape[1]
    mixed = [scaled_dot_product_attention(queries[0], keys[0], values[0], is_causal=True, enable_gqa=grouped)]
    for group, its_anchors in enumerate(anchors.split_with_sizes(list(sizes))[1:], 1):
        # The chain of this group's n-th mask are the n-th masks of the groups before it.
        own: list[KeyValue] = [
            (keys[i][:, :, : sizes[group]], values[i][:, :, : sizes[group]]) for i in range(1, group + 1)
        ]
        mixed.append(chain_attention(queries[group], (keys[0], values[0]), own, its_anchors))
    return torch.cat(mixed, dim=2)
