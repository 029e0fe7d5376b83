"""Angles of the rotary position embedding, with their scalings. Knows positions, not what is rotated."""

from __future__ import annotations

import math

import torch

from slipstream.kernels.rotary_angles import rotary_angles
from slipstream.models.config import RopeConfig


def inverse_frequencies(rope: RopeConfig, head_dim: int) -> torch.Tensor:
    """Radians per position of each rotated pair, [head_dim / 2] fp32."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.int64, device="cpu").float() / head_dim
    frequencies = 1.0 / (rope.theta**exponents)
    if rope.kind == "linear":
        return frequencies / rope.factor
    if rope.kind == "llama3":
        return frequencies / llama3_factors(rope, frequencies)
    return frequencies


def llama3_factors(rope: RopeConfig, frequencies: torch.Tensor) -> torch.Tensor:
    """By how much each pair is slowed: slow-turning ones by `factor`, fast ones not at all, others in proportion."""
    turns = rope.original_max_position * frequencies / (2 * math.pi)  # full turns over the original context
    share = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    share = share.clamp(0, 1)
    return 1 / ((1 - share) / rope.factor + share)


class RotaryEmbedding:
    """Cosines and sines of positions. Not a Module: its angles stay fp32 whatever the model is cast to."""

    def __init__(self, rope: RopeConfig, head_dim: int) -> None:
        self._frequencies = inverse_frequencies(rope, head_dim)

    def __call__(self, positions: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """For positions [...]: cos and sin [..., 1, head_dim], the first half of sin negated as `rotary` wants it."""
        if self._frequencies.device != positions.device:
            self._frequencies = self._frequencies.to(positions.device)
        return rotary_angles(positions, self._frequencies, dtype)
