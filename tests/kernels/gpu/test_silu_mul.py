"""The gated activation kernel agrees with the reference."""

from __future__ import annotations

import pytest
import torch

from slipstream.kernels.gpu.silu_mul import silu_mul
from slipstream.kernels.silu_mul import silu_mul_reference
from tests.kernels.gpu.tolerance import assert_near

SHAPES = [(1, 2), (3, 2 * 1536), (5, 2 * 1000)]
BIG = [(5, 2 * 14336), (160, 2 * 14336), (2048, 2 * 14336)]


def check(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
    torch.manual_seed(sum(shape))
    gate_up = torch.randn(shape, device=device).mul(4).to(dtype)
    assert_near(silu_mul(gate_up), silu_mul_reference(gate_up.double()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("shape", SHAPES)
def test_kernel_agrees_with_the_reference(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
    check(shape, dtype, device)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES + BIG)
def test_compiled_kernel_agrees_with_the_reference(
    shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> None:
    check(shape, dtype, device)


def test_a_very_negative_gate_gives_zero_and_no_nan(device: torch.device) -> None:
    gate_up = torch.tensor([[-200.0, 200.0, 3.0, 3.0]], device=device)
    assert silu_mul(gate_up).tolist() == [[0.0, 600.0]]
