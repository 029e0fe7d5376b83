"""The RMS norm kernels agree with the reference."""

from __future__ import annotations

import pytest
import torch

from slipstream.kernels.gpu.rms_norm import add_rms_norm, rms_norm
from slipstream.kernels.rms_norm import add_rms_norm_reference, rms_norm_reference
from tests.kernels.gpu.tolerance import assert_near

SHAPES = [(1, 64), (3, 576), (5, 100), (2, 3, 96)]
BIG = [(5, 4096), (160, 4096), (37, 576), (1000, 8192), (7, 3, 128)]
EPS = 1e-5


def check(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
    torch.manual_seed(sum(shape))
    x, residual = torch.randn(2, *shape, device=device).to(dtype)
    weight = torch.rand(shape[-1], device=device).to(dtype) + 0.5
    assert_near(rms_norm(x, weight, EPS), rms_norm_reference(x.double(), weight.double(), EPS))
    normed, total = add_rms_norm(x, residual, weight, EPS)
    expected, expected_total = add_rms_norm_reference(x.double(), residual.double(), weight.double(), EPS)
    assert_near(total, expected_total)
    assert_near(normed, expected)


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


def test_heads_inside_a_wider_row_are_normalised_in_place_of_a_copy(device: torch.device) -> None:
    qkv = torch.randn(5, 7, 64, device=device)
    heads, weight = qkv[:, 2:5], torch.rand(64, device=device)
    assert_near(rms_norm(heads, weight, EPS), rms_norm_reference(heads.double(), weight.double(), EPS))


def test_no_rows_give_no_rows(device: torch.device) -> None:
    assert rms_norm(torch.empty(0, 64, device=device), torch.ones(64, device=device), EPS).shape == (0, 64)
