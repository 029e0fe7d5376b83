"""Splits of attention change nothing, be they fewer than the context fills or many more."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from slipstream.kernels.attention import paged_attention_reference
from slipstream.kernels.batch import ForwardBatch
from slipstream.kernels.gpu.attention import attend
from slipstream.kernels.gpu.attention_plan import AttentionPlan
from tests.kernels.gpu.test_attention import BLOCK_SIZE, check, make_chunks
from tests.kernels.gpu.tolerance import assert_near


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("num_splits", [2, 8])
def test_splits_change_nothing(num_splits: int, dtype: torch.dtype, device: torch.device) -> None:
    check([(3, 180), (1, 2), (9, 64)], (4, 2, 64), dtype, device, AttentionPlan(block_m=32, num_splits=num_splits))


@pytest.mark.parametrize("most_usual", [1, 2])
def test_places_for_long_contexts_change_nothing_for_short_ones(most_usual: int, device: torch.device) -> None:
    plan = AttentionPlan(block_m=32, num_splits=8, most_usual=most_usual)
    check([(3, 180), (1, 2), (9, 64)], (4, 2, 64), torch.float32, device, plan)


@pytest.mark.parametrize("num_splits", [16, 64])
def test_more_splits_than_keys_fill_are_not_looked_at(num_splits: int, device: torch.device) -> None:
    """What an empty split's place held before is neither written nor read: NaN would show."""
    torch.manual_seed(11)
    chunks = make_chunks([(2, 300), (1, 0), (3, 40)])
    batch = ForwardBatch.build(chunks, BLOCK_SIZE, device)
    query = torch.randn(6, 2, 64, device=device)
    caches = torch.randn(2, 60, BLOCK_SIZE, 1, 64, device=device)
    allocate = torch.Tensor.new_empty

    def poisoned(x: torch.Tensor, *sizes: int, **options: Any) -> torch.Tensor:
        memory = allocate(x, *sizes, **options)
        return memory.fill_(torch.nan) if memory.is_floating_point() else memory

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "new_empty", poisoned)
        plan = AttentionPlan(block_m=16, num_splits=num_splits)
        output = attend(query, *caches, batch.block_tables, batch.query_starts, batch.context_lens, plan)
    assert_near(output, paged_attention_reference(query.double(), *caches.double(), batch))
