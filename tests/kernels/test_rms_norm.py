"""The plain normalisation, with and without adding the residual first."""

import pytest
import torch

from slipstream.kernels.rms_norm import add_rms_norm, mirror, mirrored_rms_norm, rms_norm

GENERATOR = torch.Generator().manual_seed(0)


def expected(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    x = x.double()
    return x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight.double()


def test_rows_are_scaled_to_unit_root_mean_square() -> None:
    x, weight = torch.randn(5, 3, 48, generator=GENERATOR) * 9, torch.randn(48, generator=GENERATOR)
    torch.testing.assert_close(rms_norm(x, weight, 1e-5).double(), expected(x, weight, 1e-5), atol=1e-5, rtol=0)


def test_bfloat16_is_summed_in_fp32() -> None:
    x, weight = torch.full((1, 4096), 3.0, dtype=torch.bfloat16), torch.ones(4096, dtype=torch.bfloat16)
    assert rms_norm(x, weight, 0.0).eq(1).all()  # a bf16 sum of 4096 nines stops growing at 2304


def test_a_row_of_zeros_stays_zero() -> None:
    assert rms_norm(torch.zeros(1, 8), torch.ones(8), 1e-6).eq(0).all()


@pytest.mark.parametrize("scale", [1e-4, 1.0, 300.0])
def test_the_mirrored_form_gives_the_same_whatever_the_mean(scale: float) -> None:
    x = (torch.randn(5, 48, generator=GENERATOR) + 3) * scale
    weight = torch.randn(48, generator=GENERATOR)
    mirrored = mirrored_rms_norm(x, mirror(weight), 1e-5)
    torch.testing.assert_close(mirrored.double(), expected(x, weight, 1e-5), atol=1e-5, rtol=1e-5)


def test_the_sum_is_normalised_and_handed_on() -> None:
    x, residual = torch.randn(2, 7, 16, generator=GENERATOR).unbind()
    weight = torch.randn(16, generator=GENERATOR)
    before = residual.clone()
    normalised, stream = add_rms_norm(x, residual, weight, 1e-5)
    assert torch.equal(stream, x + residual)
    assert torch.equal(normalised, rms_norm(x + residual, weight, 1e-5))
    assert torch.equal(residual, before)
