"""The kernel's cosines and sines are torch's, near the start and far out."""

from __future__ import annotations

import pytest
import torch

from slipstream.kernels.gpu.rotary_angles import rotary_angles
from slipstream.kernels.rotary_angles import rotary_angles_reference
from slipstream.layers.rotary import inverse_frequencies
from slipstream.models.config import RopeConfig


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("head_dim", [64, 96])
def test_kernel_agrees_with_the_reference(head_dim: int, dtype: torch.dtype, device: torch.device) -> None:
    positions = torch.tensor([[0, 1, 17], [1000, 8191, 131_071]], device=device)
    frequencies = inverse_frequencies(RopeConfig(), head_dim)
    cos_sin = rotary_angles(positions, frequencies.to(device), dtype)
    expected = rotary_angles_reference(positions.cpu(), frequencies, dtype)
    for mine, right in zip(cos_sin, expected, strict=True):
        torch.testing.assert_close(mine.cpu(), right, atol=1e-6 if dtype == torch.float32 else 1e-3, rtol=0)
