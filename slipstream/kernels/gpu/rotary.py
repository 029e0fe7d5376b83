"""Rotary position embedding and the KV write, in one launch on a GPU. One program per token and eight heads."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from slipstream.kernels.gpu import launch
from slipstream.kernels.gpu.launch import bring_near, start_next, wait_for_previous

NEAR_TOKENS = 64  # up to which the lines that are written are brought near; 0: never
HEADS = 8  # of one program; one head each made 82,000 programs of a prompt of 2k tokens, three times as slow


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
    HEADS: tl.constexpr,
    NEAR: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    """y[i] = x[i] cos[i] + x[(i + head_dim / 2) % head_dim] sin[i], queries to query, keys and values to the cache.

    Slots are read before the wait, and their lines brought near: in a large cache each layer's lie in pages of its own.
    """
    if OVERLAP:
        start_next()
    token = tl.program_id(0).to(tl.int64)
    heads = (tl.program_id(1) * HEADS + tl.arange(0, HEADS))[:, None]
    slot = tl.load(slots_ptr + token).to(tl.int64)
    if OVERLAP:
        if NEAR:
            rows = tl.maximum(slot, 0) * num_kv_heads + tl.minimum(tl.maximum(heads - num_heads, 0), num_kv_heads - 1)
            bring_near(key_cache_ptr + rows * HEAD_DIM)
            bring_near(value_cache_ptr + rows * HEAD_DIM)
        wait_for_previous()
    dims = tl.arange(0, BLOCK)
    partners = (dims + HEAD_DIM // 2) % HEAD_DIM
    in_head = dims < HEAD_DIM
    inside = (heads < num_heads + num_kv_heads) & in_head[None, :]
    cos = tl.load(cos_ptr + token * HEAD_DIM + dims, mask=in_head, other=0.0).to(tl.float32)
    sin = tl.load(sin_ptr + token * HEAD_DIM + dims, mask=in_head, other=0.0).to(tl.float32)
    source = query_key_ptr + token * qk_stride + heads * HEAD_DIM
    x = tl.load(source + dims[None, :], mask=inside, other=0.0).to(tl.float32)
    partner = tl.load(source + partners[None, :], mask=inside, other=0.0).to(tl.float32)
    rotated = (x * cos[None, :] + partner * sin[None, :]).to(query_ptr.dtype.element_ty)
    tl.store(
        query_ptr + (token * num_heads + heads) * HEAD_DIM + dims[None, :], rotated, mask=inside & (heads < num_heads)
    )
    # Not `& (slot >= 0)` in the mask: the interpreter of triton 3.9 makes integers of a scalar bool.
    kv_heads = tl.where(slot >= 0, heads - num_heads, -1)
    cached = inside & (kv_heads >= 0)
    source = value_ptr + token * value_stride + kv_heads * HEAD_DIM
    value = tl.load(source + dims[None, :], mask=cached, other=0.0)
    target = (slot * num_kv_heads + kv_heads) * HEAD_DIM + dims[None, :]
    tl.store(key_cache_ptr + target, rotated, mask=cached)
    tl.store(value_cache_ptr + target, value, mask=cached)


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
    _rotary_write_kernel[(num_tokens, triton.cdiv(num_heads + num_kv_heads, HEADS))](
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
        HEADS=HEADS,
        NEAR=num_tokens <= NEAR_TOKENS,
        num_warps=4,
        **launch.overlap_options(),
    )
    return query


def _packed_heads(x: torch.Tensor) -> torch.Tensor:
    """The tensor itself if its heads lie one after another, however far apart its tokens are."""
    return x if x.stride(2) == 1 and x.stride(1) == x.shape[2] else x.contiguous()
