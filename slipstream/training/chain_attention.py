"""Attention of rows that see a text and a few keys of their own, without a matrix of all keys. Knows tensors alone.

A row's own keys are those of its draft so far (of an EAGLE-3 head) or of its chain of masks (of a parallel draft): no
other row sees them, so they are products row by row, and one softmax goes over both kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch

from slipstream.kernels.chain_softmax import chain_softmax

KeyValue: TypeAlias = tuple[torch.Tensor, torch.Tensor]  # [batch, kv heads, places, head_dim] each


def chain_attention(
    query: torch.Tensor,  # [batch, heads, rows, head_dim]
    text: KeyValue,
    own: Sequence[KeyValue],  # each of as many places as there are rows
    last: torch.Tensor,  # [rows], the last place of the text that each row sees
) -> torch.Tensor:
    """[batch, heads, rows, head_dim]"""
    keys, values = text
    batch, heads, rows, width = query.shape
    shape = (batch, keys.shape[1], heads // keys.shape[1], rows)
    # The query heads of one KV head become rows of one product: no key is read twice.
    grouped = query.reshape(*shape, width)
    scores = (grouped.flatten(2, 3) @ keys.transpose(-1, -2)).reshape(*shape, -1)
    own_keys, own_values = (torch.stack(tensors, 2)[:, :, None] for tensors in zip(*own, strict=True))
    own_scores = (grouped[:, :, :, None] * own_keys).sum(-1, dtype=_sum_type(query)).transpose(-1, -2)
    weights, own_weights = chain_softmax(scores, own_scores, last, width**-0.5)
    mixed = (weights.flatten(2, 3) @ values).reshape(*shape, width)
    own_mixed = (own_weights.to(query.dtype).transpose(-1, -2)[..., None] * own_values).sum(3)
    attended: torch.Tensor = (mixed + own_mixed).flatten(1, 2)
    return attended


def _sum_type(x: torch.Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)
