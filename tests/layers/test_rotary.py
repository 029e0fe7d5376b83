"""Angles of the rotary embedding under each family's scaling."""

import pytest
import torch

from slipstream.layers.rotary import RotaryEmbedding, inverse_frequencies
from slipstream.models.config import RopeConfig


def test_linear_scaling_slows_every_pair() -> None:
    plain = inverse_frequencies(RopeConfig(), 64)
    torch.testing.assert_close(inverse_frequencies(RopeConfig(kind="linear", factor=4.0), 64), plain / 4)


def test_llama3_scaling_slows_only_what_turns_rarely() -> None:
    rope = RopeConfig(theta=500000.0, kind="llama3", factor=8.0, original_max_position=8192)
    ratio = inverse_frequencies(RopeConfig(theta=500000.0), 128) / inverse_frequencies(rope, 128)
    assert ratio[0] == 1
    assert ratio[-1] == pytest.approx(8)
    assert (ratio.diff() >= 0).all()
    assert 0 < ((ratio > 1.01) & (ratio < 7.99)).sum() < 20


def test_angles_are_exact_far_out_whatever_the_dtype_asked_for() -> None:
    cos, sin = RotaryEmbedding(RopeConfig(), 8)(torch.tensor([100_000]), torch.bfloat16)
    angles = 100_000 * inverse_frequencies(RopeConfig(), 8)
    assert (cos.dtype, cos.shape) == (torch.bfloat16, (1, 1, 8))
    assert torch.equal(cos[0, 0, :4], angles.cos().bfloat16())
    assert torch.equal(sin[0, 0, 4:], angles.sin().bfloat16())
    assert torch.equal(sin[0, 0, :4], -sin[0, 0, 4:])
