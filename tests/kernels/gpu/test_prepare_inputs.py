"""The prepare-inputs kernel agrees with the reference."""

from __future__ import annotations

import pytest
import torch

from slipstream.kernels.gpu.prepare_inputs import prepare_inputs
from slipstream.kernels.prepare_inputs import prepare_inputs_reference

BLOCK_SIZE = 4


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("lengths", [[1], [5, 0, 1, 3], [1] * 40, [300, 5, 200]])
def test_kernel_agrees_with_the_reference(lengths: list[int], dtype: torch.dtype, device: torch.device) -> None:
    torch.manual_seed(len(lengths))
    sizes = torch.tensor(lengths, device=device)
    starts = torch.cat((sizes.new_zeros(1), sizes.cumsum(0))).to(dtype)
    contexts = (sizes + torch.randint(0, 50, (len(lengths),), device=device)).to(dtype)
    max_blocks = int(contexts.max()) // BLOCK_SIZE + 1
    tables = torch.randint(0, 1000, (len(lengths), max_blocks), device=device, dtype=dtype)
    num_tokens = sum(lengths) + 3
    outputs = prepare_inputs(starts, contexts, tables, BLOCK_SIZE, num_tokens)
    expected = prepare_inputs_reference(starts.long(), contexts.long(), tables.long(), BLOCK_SIZE, num_tokens)
    assert all(torch.equal(output, right) for output, right in zip(outputs, expected, strict=True))
