"""Matrices survive storage as int8 rows but for the rounding; damaged ones are named."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from slipstream.errors import CheckpointError
from slipstream.models.int8_rows import as_int8_rows, dequantize_rows, quantize_rows, whole

FILE = Path("model.safetensors")


def test_rows_are_rounded_to_a_127th_of_their_largest_value() -> None:
    weight = torch.randn(5, 40, generator=torch.Generator().manual_seed(0))
    weight[2] = 0
    error = (dequantize_rows(*quantize_rows(weight)) - weight).abs()
    assert bool((error <= 0.51 * weight.abs().amax(1, keepdim=True) / 127 + 1e-7).all())


def test_matrices_are_put_together_and_others_left_as_they_are() -> None:
    weight, norm = torch.randn(4, 6, generator=torch.Generator().manual_seed(1)), torch.ones(6)
    stored = as_int8_rows("fc.weight", weight) | {"norm.weight": norm}
    read = {name: tensor for name, _, tensor in whole((name, FILE, tensor) for name, tensor in stored.items())}
    assert read.keys() == {"fc.weight", "norm.weight"}
    torch.testing.assert_close(read["fc.weight"], weight, rtol=0, atol=0.02)
    assert read["norm.weight"] is norm


@pytest.mark.parametrize(
    ("damage", "match"), [({"fc.weight.scale": None}, "is missing"), ({"fc.weight.scale": torch.ones(3)}, "each row")]
)
def test_a_matrix_without_a_scale_for_each_row_is_refused(damage: dict[str, torch.Tensor | None], match: str) -> None:
    stored = as_int8_rows("fc.weight", torch.ones(4, 6)) | damage
    entries = [(name, FILE, tensor) for name, tensor in stored.items() if tensor is not None]
    with pytest.raises(CheckpointError, match=match):
        list(whole(entries))
