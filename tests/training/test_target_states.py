"""Kept states are those that the target computes."""

from __future__ import annotations

import pytest
import torch

from slipstream.models.llama import LlamaModel
from slipstream.training.target_states import TargetStates


@pytest.mark.parametrize("batch", [3, 4, 20])
def test_kept_or_not_the_states_are_the_same(target: LlamaModel, batch: int) -> None:
    token_ids = torch.randint(3, 300, (10, 9), generator=torch.Generator().manual_seed(0), dtype=torch.int32)
    rows = torch.tensor([9, 2, 5])
    kept = TargetStates(target, token_ids, batch, keep=True).of(rows)
    torch.testing.assert_close(kept, TargetStates(target, token_ids, batch, keep=False).of(rows))
