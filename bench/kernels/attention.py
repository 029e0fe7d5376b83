"""Shapes of paged attention: lone and many verify passes over short and long contexts, and a prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch

from bench.kernels.case import Case
from slipstream.kernels.batch import Chunk, ForwardBatch
from slipstream.kernels.gpu.attention import paged_attention

BLOCK_SIZE = 16
INPUT_SETS = 4
# name, sequences, query tokens, context, heads, KV heads, head_dim
SHAPES = (
    ("8B", 1, 5, 1024, 32, 8, 128),
    ("8B", 32, 5, 256, 32, 8, 128),
    ("8B", 32, 5, 2048, 32, 8, 128),
    ("8B", 1, 5, 32768, 32, 8, 128),
    ("8B", 1, 2048, 2048, 32, 8, 128),
    ("SmolLM2", 1, 5, 1024, 9, 3, 64),
)


def cases() -> Iterator[Case]:
    for name, sequences, query_len, context, heads, kv_heads, dim in SHAPES:
        runs = [_run(sequences, query_len, context, heads, kv_heads, dim) for _ in range(INPUT_SETS)]
        num_bytes = 4 * dim * (sequences * context * kv_heads + sequences * query_len * heads)
        yield Case("paged_attention", f"{sequences} x {query_len} over {context} {name}", runs, num_bytes)


def _run(*shape: int) -> Callable[[], object]:
    return partial(paged_attention, *attention_inputs(*shape))


def attention_inputs(
    sequences: int, query_len: int, context: int, heads: int, kv_heads: int, dim: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, ForwardBatch]:
    """Queries, keys, values, and whose they are; blocks are scattered over the cache."""
    per_sequence = -(-context // BLOCK_SIZE)
    blocks = torch.randperm(sequences * per_sequence).tolist()
    chunks = [
        Chunk([1] * query_len, context - query_len, blocks[i * per_sequence : (i + 1) * per_sequence], 0)
        for i in range(sequences)
    ]
    batch = ForwardBatch.build(chunks, BLOCK_SIZE, torch.device("cuda"))
    query = torch.randn(sequences * query_len, heads, dim, device="cuda", dtype=torch.bfloat16)
    caches = torch.randn(2, len(blocks), BLOCK_SIZE, kv_heads, dim, device="cuda", dtype=torch.bfloat16)
    return query, caches[0], caches[1], batch
