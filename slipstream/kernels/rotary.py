"""Rotary position embedding, and writing new keys and values into the paged cache. The torch reference and CPU path."""

from __future__ import annotations

import torch

from slipstream.kernels.dispatch import fused


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


def rotary_write_kv(
    query_key: torch.Tensor,  # [num_tokens, num_heads + num_kv_heads, head_dim], not yet rotated
    value: torch.Tensor,  # [num_tokens, num_kv_heads, head_dim]
    cos: torch.Tensor,  # [num_tokens, 1, head_dim]
    sin: torch.Tensor,  # [num_tokens, 1, head_dim], its first half negated
    key_cache: torch.Tensor,  # [num_blocks, block_size, num_kv_heads, head_dim], written in place
    value_cache: torch.Tensor,  # the same shape
    slot_mapping: torch.Tensor,  # [num_tokens]
) -> torch.Tensor:
    """Rotated queries [num_tokens, num_heads, head_dim]; rotated keys and the values go into their slots."""
    if fused(query_key):
        from slipstream.kernels.gpu import rotary as gpu

        return gpu.rotary_write_kv(query_key, value, cos, sin, key_cache, value_cache, slot_mapping)
    return rotary_write_kv_reference(query_key, value, cos, sin, key_cache, value_cache, slot_mapping)


def rotary_write_kv_reference(
    query_key: torch.Tensor,
    value: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> torch.Tensor:
    num_kv_heads = value.shape[1]
    num_heads = query_key.shape[1] - num_kv_heads
    query, key = rotary(query_key, cos, sin).split_with_sizes((num_heads, num_kv_heads), dim=1)
    write_kv(key, value, key_cache, value_cache, slot_mapping)
    return query
