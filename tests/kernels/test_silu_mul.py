"""The plain gated activation."""

import math

import torch

from slipstream.kernels.silu_mul import silu_mul


def test_each_gate_meets_the_up_value_half_a_row_further() -> None:
    gates, ups = [-2.0, 0.0, 3.0], [5.0, 6.0, -7.0]
    expected = [gate / (1 + math.exp(-gate)) * up for gate, up in zip(gates, ups, strict=True)]
    torch.testing.assert_close(silu_mul(torch.tensor([gates + ups])), torch.tensor([expected]))


def test_the_input_is_left_alone() -> None:
    gate_up = torch.randn(2, 3, 8)
    before = gate_up.clone()
    assert silu_mul(gate_up).shape == (2, 3, 4)
    assert torch.equal(gate_up, before)
