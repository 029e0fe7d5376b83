"""Attention of rows that see a text and a few keys of their own, without a matrix of all keys. Knows tensors alone.

A row's own keys are those of its draft so far (of an EAGLE-3 head) or of its chain of masks (of a parallel draft): no
other row sees them, so they are products row by row, and one softmax goes over both kinds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch

KeyValue: TypeAlias = tuple[torch.Tensor, torch.Tensor]  # [batch, kv heads, places, head_dim] each


def chain_attention(
    query: torch.Tensor,  # [batch, heads, rows, head_dim]
    text: KeyValue,
    own: Sequence[KeyValue],  # each of as many places as there are rows
    unseen: torch.Tensor,  # [rows, text places], True = not visible
) -> torch.Tensor:
    """[batch, heads, rows, head_dim]"""
    keys, values = text
    batch, heads, rows, width = query.shape
    shape, scale = (batch, keys.shape[1], heads // keys.shape[1], rows), width**-0.5
    # The query heads of one KV head become rows of one product: no key is read twice.
    query = query.reshape(*shape, width)
    scores = (query.flatten(2, 3) @ keys.transpose(-1, -2)).reshape(*shape, -1)
    scores = (scores.float() * scale).masked_fill(unseen, -torch.inf)
    own_scores = [(query * key[:, :, None]).float().sum(-1, keepdim=True) * scale for key, _ in own]
    peak = scores.amax(-1, keepdim=True)
    for score in own_scores:
        peak = torch.maximum(peak, score)
    peak = peak.detach()  # any shift gives the same softmax
    weights, own_weights = (scores - peak).exp(), [(score - peak).exp() for score in own_scores]
    total = weights.sum(-1, keepdim=True)
    mixed = (weights.to(query.dtype).flatten(2, 3) @ values).reshape(*shape, width).float()
    for weight, (_, value) in zip(own_weights, own, strict=True):
        total = total + weight
        mixed = mixed + weight * value[:, :, None]
    attended: torch.Tensor = (mixed / total).to(query.dtype).flatten(1, 2)
    return attended
