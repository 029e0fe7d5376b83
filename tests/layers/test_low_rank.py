"""Slots of one product: matrices side by side, filled, cleared, and told by their size."""

from __future__ import annotations

import torch

from slipstream.kernels.low_rank import RowGroups
from slipstream.layers.linear import Linear
from slipstream.layers.low_rank import LowRank


def filled() -> tuple[LowRank, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    addition = LowRank(num_slots=2, rank=6, width=7, depth=5, like=torch.empty(0))
    down, up = torch.randn(3, 5), torch.randn(4, 3)
    addition.fill(1, (down, up), first_rank=2, first_row=3)
    return addition, down, up


def test_a_matrix_adds_to_its_own_rows_of_the_product_only() -> None:
    addition, down, up = filled()
    groups = RowGroups.of((1,), (2,))
    assert groups is not None
    x, output = torch.randn(2, 5), torch.zeros(2, 7)
    addition.add_to(output, x, groups)
    torch.testing.assert_close(output[:, 3:], x @ down.T @ up.T)
    assert not output[:, :3].any()


def test_a_cleared_slot_adds_nothing() -> None:
    addition, _, _ = filled()
    addition.clear(1)
    groups = RowGroups.of((1,), (2,))
    assert groups is not None
    output = torch.zeros(2, 7)
    addition.add_to(output, torch.randn(2, 5), groups)
    assert not output.any()


def test_its_memory_is_that_of_both_matrices() -> None:
    assert filled()[0].bytes_per_slot == (6 * 5 + 7 * 6) * 4


def test_a_product_with_room_adds_what_its_rows_have() -> None:
    linear = Linear(5, 7, bias=True, dtype=torch.float32)
    torch.nn.init.normal_(linear.weight)
    torch.nn.init.normal_(linear.bias)
    linear.low_rank, down, up = filled()
    x = torch.randn(3, 5)
    with torch.no_grad():
        plain, adapted = linear(x), linear(x, RowGroups.of((None, 1), (2, 1)))
    assert torch.equal(adapted[:2], plain[:2])
    torch.testing.assert_close(adapted[2, 3:], plain[2, 3:] + up @ (down @ x[2]))
