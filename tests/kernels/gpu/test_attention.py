"""Paged attention on a GPU agrees with the reference: verify passes and prompts together, with and without splits."""

from __future__ import annotations

import pytest
import torch

from slipstream.kernels.attention import paged_attention_reference
from slipstream.kernels.batch import Chunk, ForwardBatch
from slipstream.kernels.gpu.attention import attend, paged_attention
from slipstream.kernels.gpu.attention_plan import AttentionPlan, plan_attention
from tests.kernels.gpu.tolerance import assert_near

BLOCK_SIZE = 8
DECODE = [(1, 0), (1, 21)]  # query tokens, context before them
VERIFY = [(5, 30), (3, 0), (1, 17)]
MIXED = [(37, 5), (1, 9), (5, 60)]
LONG = [(5, 1019), (1, 4000), (3, 77), (200, 300), (1, 0), (700, 0)]
HEADS = [(9, 3, 64), (4, 1, 96), (4, 4, 128), (2, 1, 256), (4, 2, 8)]  # heads, KV heads, head_dim
Spans = list[tuple[int, int]]


def make_chunks(spans: Spans) -> list[Chunk]:
    """Chunks whose block tables are scattered over the cache."""
    needed = [-(-(length + start) // BLOCK_SIZE) for length, start in spans]
    blocks = torch.randperm(sum(needed)).tolist()
    return [
        Chunk([1] * length, start, [blocks.pop() for _ in range(n)], 0)
        for (length, start), n in zip(spans, needed, strict=True)
    ]


def check(
    spans: Spans, heads: tuple[int, int, int], dtype: torch.dtype, device: torch.device, plan: AttentionPlan | None
) -> None:
    torch.manual_seed(7)
    chunks = make_chunks(spans)
    num_heads, kv_heads, head_dim = heads
    batch = ForwardBatch.build(chunks, BLOCK_SIZE, device)
    num_blocks = 1 + max(max(chunk.block_ids) for chunk in chunks)
    query = torch.randn(len(batch.token_ids), num_heads, head_dim, device=device).to(dtype)
    caches = torch.randn(2, num_blocks, BLOCK_SIZE, kv_heads, head_dim, device=device).to(dtype)
    if plan is None:
        output = paged_attention(query, *caches, batch)
    else:
        output = attend(query, *caches, batch.block_tables, batch.query_starts, batch.context_lens, plan)
    assert_near(output, paged_attention_reference(query.double(), *caches.double(), batch))


@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize("spans", [DECODE, VERIFY, MIXED], ids=["decode", "verify", "mixed"])
def test_kernel_agrees_with_the_reference(spans: Spans, heads: tuple[int, int, int], device: torch.device) -> None:
    check(spans, heads, torch.float32, device, AttentionPlan(block_m=16, num_splits=1))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("heads", [*HEADS, (32, 8, 128)])
@pytest.mark.parametrize("spans", [VERIFY, LONG], ids=["verify", "long"])
def test_compiled_kernel_agrees_with_the_reference(
    spans: Spans, heads: tuple[int, int, int], dtype: torch.dtype, device: torch.device
) -> None:
    check(spans, heads, dtype, device, None)


def test_a_sequence_without_tokens_is_padding(device: torch.device) -> None:
    torch.manual_seed(3)
    query = torch.randn(2, 2, 64, device=device)
    caches = torch.randn(2, 4, BLOCK_SIZE, 1, 64, device=device)
    tables = torch.tensor([[2], [0], [3]], device=device)
    starts, lens = torch.tensor([0, 1, 1, 2], device=device), torch.tensor([3, 0, 5], device=device)
    plan = AttentionPlan(block_m=16, num_splits=2)
    output = attend(query, *caches, tables, starts, lens, plan)
    chunks = [Chunk([1], 2, [2], 0), Chunk([1], 4, [3], 0)]
    batch = ForwardBatch.build(chunks, BLOCK_SIZE, device)
    assert_near(output, paged_attention_reference(query.double(), *caches.double(), batch))


def test_a_lone_verify_pass_is_split_and_a_long_prompt_is_not() -> None:
    sizes = {"num_heads": 32, "kv_heads": 8, "dim": 128}
    verify = plan_attention(num_tokens=5, num_seqs=1, max_query_len=5, max_context_len=1024, **sizes)
    assert verify == AttentionPlan(block_m=32, num_splits=16, most_usual=16)
    prompt = plan_attention(num_tokens=2048, num_seqs=1, max_query_len=2048, max_context_len=2048, **sizes)
    assert prompt == AttentionPlan(block_m=128, num_splits=1, most_usual=1)
