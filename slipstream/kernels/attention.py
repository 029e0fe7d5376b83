"""Attention of new tokens over the paged KV cache. The torch reference and CPU path."""

from __future__ import annotations

import torch
from torch.nn.functional import scaled_dot_product_attention

from slipstream.engine.batch import ForwardBatch, SequenceGroup
from slipstream.kernels.dispatch import fused


def paged_attention(
    query: torch.Tensor,  # [num_tokens, num_heads, head_dim], rotated
    key_cache: torch.Tensor,  # [num_blocks, block_size, num_kv_heads, head_dim], new tokens already written
    value_cache: torch.Tensor,  # the same shape
    batch: ForwardBatch,
) -> torch.Tensor:
    """softmax(query . keys / sqrt(head_dim)) . values over each token's own sequence up to itself, like `query`."""
    if fused(query):
        from slipstream.kernels.gpu import attention as gpu

        return gpu.paged_attention(query, key_cache, value_cache, batch)
    return paged_attention_reference(query, key_cache, value_cache, batch)


def paged_attention_reference(
    query: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, batch: ForwardBatch
) -> torch.Tensor:
    output = torch.empty_like(query)
    for group in batch.groups:
        output.index_copy_(0, group.rows, _attend(query, key_cache, value_cache, group))
    return output


def _attend(
    query: torch.Tensor, key_cache: torch.Tensor, value_cache: torch.Tensor, group: SequenceGroup
) -> torch.Tensor:
    """Attention of one group, [num_seqs * max_query_len, num_heads, head_dim].

    The heads that share a KV head are folded into the query axis: on CPUs that is two to seven times as fast as
    `enable_gqa` for one query token in bf16. Gathering whole blocks with index_select beats indexing six times.
    """
    num_seqs, query_len, context_len = group.mask.shape
    num_heads, head_dim = query.shape[1:]
    kv_heads = key_cache.shape[2]
    sharing = num_heads // kv_heads
    folded = query.index_select(0, group.rows).view(num_seqs, query_len, kv_heads, sharing, head_dim)
    folded = folded.permute(0, 2, 3, 1, 4).reshape(num_seqs, kv_heads, sharing * query_len, head_dim)
    mask = group.mask[:, None]
    if query_len > 1:
        mask = mask.repeat(1, 1, sharing, 1)
    keys, values = (
        cache.index_select(0, group.block_ids).view(num_seqs, context_len, kv_heads, head_dim).transpose(1, 2)
        for cache in (key_cache, value_cache)
    )
    attended = scaled_dot_product_attention(folded, keys, values, attn_mask=mask)
    attended = attended.view(num_seqs, kv_heads, sharing, query_len, head_dim).permute(0, 3, 1, 2, 4)
    return attended.reshape(-1, num_heads, head_dim)
