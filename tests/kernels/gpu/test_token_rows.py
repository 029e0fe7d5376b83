"""The kernel places tokens where the reference does."""

from __future__ import annotations

import pytest
import torch

from slipstream.kernels.gpu.token_rows import place_tokens
from slipstream.kernels.token_rows import place_tokens_reference


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
@pytest.mark.parametrize("context_lens", [[1], [0, 4, 5, 0, 17], [*range(70)]])
def test_kernel_agrees_with_the_reference(context_lens: list[int], dtype: torch.dtype, device: torch.device) -> None:
    torch.manual_seed(len(context_lens))
    lens = torch.tensor(context_lens, device=device)
    tables = torch.randint(0, 1000, (len(lens), 20), device=device, dtype=dtype)
    placed, expected = place_tokens(lens, tables, 4), place_tokens_reference(lens, tables, 4)
    assert all(torch.equal(got, right) for got, right in zip(placed, expected, strict=True))
