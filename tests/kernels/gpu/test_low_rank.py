"""The grouped low-rank kernel agrees with the reference, over shapes that fill no tile."""

from __future__ import annotations

import pytest
import torch

from slipstream.kernels.gpu.low_rank import add_low_rank
from slipstream.kernels.low_rank import RowGroups, add_low_rank_reference
from tests.kernels.gpu.tolerance import assert_near

NUM_SLOTS = 3
# rows of base, slot 0, base, slot 2, slot 0 again; depth, width, rank
SHAPES = [((1, 1, 0, 0, 0), 64, 64, 16), ((2, 3, 1, 20, 5), 100, 130, 8), ((0, 17, 2, 1, 1), 33, 48, 48)]
BIG = [((5, 40, 3, 64, 9), 576, 3072, 32), ((0, 1, 0, 1, 0), 1536, 576, 16)]
Shape = tuple[tuple[int, ...], int, int, int]


def check(shape: Shape, dtype: torch.dtype, device: torch.device) -> None:
    lengths, depth, width, rank = shape
    torch.manual_seed(depth)
    num_rows = sum(lengths) + 2  # the last ones are padding
    x, output = torch.randn(num_rows, depth).to(dtype), torch.randn(num_rows, width).to(dtype)
    down, up = torch.randn(NUM_SLOTS, rank, depth).to(dtype), torch.randn(NUM_SLOTS, width, rank).to(dtype)
    slots = (None, 0, None, 2, 0)
    groups, on_device = (RowGroups.of(slots, lengths, where) for where in (torch.device("cpu"), device))
    assert groups is not None
    assert on_device is not None
    expected = output.double()
    add_low_rank_reference(expected, x.double(), down.double(), up.double(), groups)
    added = output.to(device)
    add_low_rank(added, x.to(device), down.to(device), up.to(device), on_device)
    assert_near(added, expected)
    touched = torch.cat([rows for _, rows in groups.groups])
    untouched = [row for row in range(num_rows) if row not in touched]
    assert torch.equal(added.cpu()[untouched], output[untouched])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("shape", SHAPES)
def test_kernel_agrees_with_the_reference(shape: Shape, dtype: torch.dtype, device: torch.device) -> None:
    check(shape, dtype, device)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES + BIG)
def test_compiled_kernel_agrees_with_the_reference(shape: Shape, dtype: torch.dtype, device: torch.device) -> None:
    check(shape, dtype, device)
