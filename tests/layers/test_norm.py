"""Normalisation with a learned scale."""

import torch

from slipstream.kernels.rms_norm import rms_norm
from slipstream.layers.norm import RMSNorm


def test_adding_first_is_normalising_the_sum() -> None:
    norm = RMSNorm(16, 1e-5, torch.float32)
    torch.nn.init.normal_(norm.weight)
    x, residual = torch.randn(2, 5, 16)
    normalised, stream = norm.add(x, residual)
    torch.testing.assert_close(normalised, norm(x + residual))
    assert torch.equal(stream, x + residual)
    assert torch.equal(norm(x), rms_norm(x, norm.weight, 1e-5))


def test_packing_changes_nothing_but_speed() -> None:
    norm = RMSNorm(16, 1e-5, torch.float32)
    torch.nn.init.normal_(norm.weight)
    x, residual = torch.randn(2, 5, 3, 16)
    alone, (summed, stream) = norm(x), norm.add(x, residual)
    norm.pack()
    torch.testing.assert_close(norm(x), alone)
    torch.testing.assert_close(norm.add(x, residual), (summed, stream))
