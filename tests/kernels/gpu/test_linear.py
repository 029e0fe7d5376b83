"""The few-rows product agrees with the library's."""

from __future__ import annotations

import pytest
import torch

from slipstream.kernels.gpu.linear import few_rows_linear, suits
from tests.kernels.gpu.tolerance import assert_near

SHAPES = [(1, 64, 128), (5, 100, 130), (16, 33, 300), (33, 40, 128)]  # rows, width, depth
BIG = [(5, 6144, 4096), (1, 4096, 14336), (16, 576, 1536), (5, 960, 576), (64, 4096, 4096)]


def check(shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device) -> None:
    torch.manual_seed(sum(shape))
    rows, width, depth = shape
    x, weight = (torch.randn(n, depth, device=device).to(dtype) for n in (rows, width))
    assert_near(few_rows_linear(x, weight), x.double() @ weight.double().T)


@pytest.mark.parametrize("shape", SHAPES)
def test_kernel_agrees_with_the_library(shape: tuple[int, int, int], device: torch.device) -> None:
    check(shape, torch.float16, device)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES + BIG)
def test_compiled_kernel_agrees_with_the_library(
    shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device
) -> None:
    check(shape, dtype, device)


def test_many_rows_other_widths_and_fp32_stay_with_the_library() -> None:
    half = torch.zeros(5, 64, dtype=torch.float16)
    assert suits(half, torch.empty(4096, 64))
    assert not suits(half.repeat(4, 1), torch.empty(4096, 64))
    assert not suits(half, torch.empty(49152, 64))
    assert not suits(half, torch.empty(960, 64))
    assert not suits(half.float(), torch.empty(4096, 64))
