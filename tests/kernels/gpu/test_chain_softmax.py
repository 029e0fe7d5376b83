"""The softmax of training's chains, forward and backward, agrees with the reference."""

from __future__ import annotations

import pytest
import torch

from slipstream.kernels.chain_softmax import chain_softmax_reference
from slipstream.kernels.gpu.chain_softmax import ChainSoftmax
from tests.kernels.gpu.tolerance import assert_near

SHAPES = [(2, 1, 5, 9, 1), (1, 3, 4, 40, 5), (1, 1, 1, 1, 3)]  # batch, heads, rows, places, own
BIG = [(32, 9, 768, 768, 4), (32, 9, 538, 768, 1)]


def check(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
    generator = torch.Generator().manual_seed(sum(shape))
    *batch, rows, places, num_own = shape
    scores = torch.randn(*batch, rows, places, generator=generator).mul(6).to(device, dtype)
    own = torch.randn(*batch, rows, num_own, generator=generator).mul(6).to(device)
    last = torch.randint(0, places, (rows,), generator=generator).to(device)
    upstream = [torch.randn(*batch, rows, size, generator=generator).to(device) for size in (places, num_own)]
    results = []
    for attend, leaves in (
        (ChainSoftmax.apply, [scores.clone(), own.clone()]),
        (chain_softmax_reference, [scores.double(), own.double()]),
    ):
        for leaf in leaves:
            leaf.requires_grad_()
        weights = attend(leaves[0], leaves[1], last, 0.125)
        sum((w * g.to(w.dtype)).sum() for w, g in zip(weights, upstream, strict=True)).backward()
        results.append([*weights, *(leaf.grad for leaf in leaves)])
    for ours, reference in zip(*results, strict=True):
        assert_near(ours.detach().to(dtype), reference.detach())  # what is fp32 follows from weights of that type


@pytest.mark.parametrize("shape", SHAPES)
def test_kernels_agree_with_the_reference(shape: tuple[int, ...], device: torch.device) -> None:
    check(shape, torch.float32, device)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES + BIG)
def test_compiled_kernels_agree_with_the_reference(
    shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
) -> None:
    check(shape, dtype, device)
