"""Rotary position embedding, and writing new keys and values into the paged cache. The torch reference and CPU path."""

from __future__ import annotations

import torch


def rotary(
    x: torch.Tensor,  # [..., num_heads, head_dim]
    cos: torch.Tensor,  # [..., 1, head_dim]
    sin: torch.Tensor,  # [..., 1, head_dim], its first half negated
) -> torch.Tensor:
    """Rotates each pair (x[i], x[i + head_dim / 2]) by its position's angle."""
    return (x * cos).addcmul_(x.roll(x.shape[-1] // 2, -1), sin)


def write_kv(
    keys: torch.Tensor,  # [num_tokens, num_kv_heads, head_dim]
    values: torch.Tensor,  # [num_tokens, num_kv_heads, head_dim]
    key_cache: torch.Tensor,  # [num_blocks, block_size, num_kv_heads, head_dim], written in place
    value_cache: torch.Tensor,  # the same shape
    slot_mapping: torch.Tensor,  # [num_tokens], block * block_size + offset
) -> None:
    """Stores each token's key and value in its slot."""
    key_cache.flatten(0, 1).index_copy_(0, slot_mapping, keys)
    value_cache.flatten(0, 1).index_copy_(0, slot_mapping, values)
