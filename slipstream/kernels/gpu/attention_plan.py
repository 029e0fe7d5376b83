"""How one launch of paged attention is cut up: rows of a tile, splits of the context. Knows sizes only, no kernel."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton

from slipstream.kernels.batch import ForwardBatch

PROGRAMS_WANTED = 132  # one for each of a Hopper's multiprocessors
LONG_CONTEXT = 16384  # keys, from which on two for each are faster
SHORTEST_SPLIT = 64  # keys: one turn of the loop
LONGEST_SPLIT = 4096  # keys; one program that reads more would finish long after the others
SCRATCH_BYTES = 64 << 20
MAX_SPLITS = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionPlan:
    """How one launch is cut up. Depends on sizes only, so that a captured graph can keep it."""

    block_m: int  # rows (query token x head) of a tile
    num_splits: int  # parts that a context may be cut into, a power of two
    most_usual: int = MAX_SPLITS  # parts of a context whose parts do not become longer than LONGEST_SPLIT by it
    num_stages: int = 2  # turns of the loop whose keys and values are on their way at once


def plan_attention(
    *, num_tokens: int, num_seqs: int, max_query_len: int, max_context_len: int, num_heads: int, kv_heads: int, dim: int
) -> AttentionPlan:
    """Small tiles for verify passes, large ones for prompts; as many splits as fill the GPU and the scratch holds."""
    sharing = num_heads // kv_heads
    rows = triton.next_power_of_2(min(max_query_len, 128) * sharing)
    block_m = min(max(rows, triton.next_power_of_2(sharing), 16), 64 if dim > 128 else 128)
    programs = num_seqs * triton.cdiv(max_query_len, block_m // sharing) * kv_heads
    share = PROGRAMS_WANTED * (2 if max_context_len > LONG_CONTEXT else 1) // programs
    usual = _floor_power_of_2(share)
    wanted = max(usual, triton.cdiv(max_context_len, LONGEST_SPLIT))
    room = SCRATCH_BYTES // (num_tokens * num_heads * dim * 4)
    limit = min(triton.cdiv(max_context_len, SHORTEST_SPLIT), room, MAX_SPLITS)
    splits = min(triton.next_power_of_2(wanted), _floor_power_of_2(limit))
    return AttentionPlan(block_m=block_m, num_splits=max(splits, 1), most_usual=usual)


def _floor_power_of_2(number: int) -> int:
    """The largest that is not above it, at least 1."""
    return 1 << (max(number, 1).bit_length() - 1)


def plan_of(query: torch.Tensor, key_cache: torch.Tensor, batch: ForwardBatch) -> AttentionPlan:
    return plan_attention(
        num_tokens=len(query),
        num_seqs=len(batch.spans),
        max_query_len=max(query_len for query_len, _ in batch.spans),
        max_context_len=max(context_len for _, context_len in batch.spans),
        num_heads=query.shape[1],
        kv_heads=key_cache.shape[2],
        dim=query.shape[2],
    )
