"""Rotary position embedding and the KV write, in one launch on a GPU. One program per token and head."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _rotary_write_kernel(
    query_key_ptr: tl.tensor,  # [num_tokens, num_heads + num_kv_heads, head_dim], rows qk_stride apart
    value_ptr: tl.tensor,  # [num_tokens, num_kv_heads, head_dim], rows value_stride apart
    cos_ptr: tl.tensor,  # [num_tokens, head_dim]
    sin_ptr: tl.tensor,  # [num_tokens, head_dim], its first half negated
    slots_ptr: tl.tensor,  # [num_tokens]; -1 marks a padding token, which writes nothing
    query_ptr: tl.tensor,  # [num_tokens, num_heads, head_dim], out
    key_cache_ptr: tl.tensor,  # [num_slots, num_kv_heads, head_dim], out
    value_cache_ptr: tl.tensor,  # the same shape, out
    qk_stride: int,
    value_stride: int,
    num_heads: int,
    num_kv_heads: int,
    HEAD_DIM: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """y[i] = x[i] cos[i] + x[(i + head_dim / 2) % head_dim] sin[i], queries to query, keys and values to the cache."""
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    dims = tl.arange(0, BLOCK)
    inside = dims < HEAD_DIM
    slot = tl.load(slots_ptr + token).to(tl.int64)
    source = query_key_ptr + token * qk_stride + head * HEAD_DIM
    x = tl.load(source + dims, mask=inside, other=0.0).to(tl.float32)
    partner = tl.load(source + (dims + HEAD_DIM // 2) % HEAD_DIM, mask=inside, other=0.0).to(tl.float32)
    cos = tl.load(cos_ptr + token * HEAD_DIM + dims, mask=inside, other=0.0).to(tl.float32)
    sin = tl.load(sin_ptr + token * HEAD_DIM + dims, mask=inside, other=0.0).to(tl.float32)
    rotated = (x * cos + partner * sin).to(query_ptr.dtype.element_ty)
    if head < num_heads:
        tl.store(query_ptr + (token * num_heads + head) * HEAD_DIM + dims, rotated, mask=inside)
    else:
        kv_head = head - num_heads
        target = (slot * num_kv_heads + kv_head) * HEAD_DIM + dims
        value = tl.load(value_ptr + token * value_stride + kv_head * HEAD_DIM + dims, mask=inside, other=0.0)
        tl.store(key_cache_ptr + target, rotated, mask=inside & (slot >= 0))
        tl.store(value_cache_ptr + target, value, mask=inside & (slot >= 0))


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
    num_tokens, num_kv_heads, head_dim = value.shape
    num_heads = query_key.shape[1] - num_kv_heads
    assert all(cache.is_contiguous() for cache in (key_cache, value_cache)), "the cache is written in place"
    query_key, value = _packed_heads(query_key), _packed_heads(value)
    query = query_key.new_empty(num_tokens, num_heads, head_dim)
    _rotary_write_kernel[(num_tokens, num_heads + num_kv_heads)](
        query_key,
        value,
        cos.contiguous(),
        sin.contiguous(),
        slot_mapping,
        query,
        key_cache,
        value_cache,
        query_key.stride(0),
        value.stride(0),
        num_heads,
        num_kv_heads,
        HEAD_DIM=head_dim,
        BLOCK=triton.next_power_of_2(head_dim),
        num_warps=1,
    )
    return query


def _packed_heads(x: torch.Tensor) -> torch.Tensor:
    """The tensor itself if its heads lie one after another, however far apart its tokens are."""
    return x if x.stride(2) == 1 and x.stride(1) == x.shape[2] else x.contiguous()
