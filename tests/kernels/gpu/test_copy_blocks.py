"""The kernel copies the blocks that the reference copies, and no others."""

from __future__ import annotations

import pytest
import torch

from slipstream.kernels.copy_blocks import copy_blocks_reference
from slipstream.kernels.gpu.copy_blocks import copy_blocks


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("head_dim", [6, 520])
def test_kernel_agrees_with_the_reference(head_dim: int, dtype: torch.dtype, device: torch.device) -> None:
    torch.manual_seed(0)
    blocks = torch.randn(2, 3, 9, 4, 2, head_dim, device=device).to(dtype)
    pairs = torch.tensor([[2, 5], [-1, 0], [2, 7], [8, 0], [-1, 4]], dtype=torch.int32, device=device)
    copied, expected = blocks.clone(), blocks.clone()
    copy_blocks(copied, pairs)
    copy_blocks_reference(expected, pairs)
    assert torch.equal(copied, expected)
    assert torch.equal(copied[:, :, 1], blocks[:, :, 1])
    assert not torch.equal(copied[:, :, 7], blocks[:, :, 7])
