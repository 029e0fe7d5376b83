"""The mask kernel agrees with the reference."""

from __future__ import annotations

import pytest
import torch

from slipstream.kernels.gpu.token_mask import mask_tokens
from slipstream.sampling.token_masks import mask_tokens as mask_tokens_reference

SHAPES = [(1, 5), (4, 320), (3, 9000)]


def check(num_rows: int, vocab_size: int, device: torch.device) -> None:
    generator = torch.Generator().manual_seed(vocab_size)
    logits = torch.randn(num_rows, vocab_size, generator=generator).to(device)
    rows = torch.randperm(num_rows, generator=generator)[: max(1, num_rows // 2)].int().to(device)
    words = torch.randint(-(2**31), 2**31, (len(rows), -(-vocab_size // 32)), generator=generator)
    expected = logits.clone()
    mask_tokens_reference(expected, rows, words.int().to(device))
    mask_tokens(logits, rows, words.int().to(device))
    assert torch.equal(logits, expected)
    assert logits.isinf().any()


@pytest.mark.parametrize("shape", SHAPES)
def test_kernel_agrees_with_the_reference(shape: tuple[int, int], device: torch.device) -> None:
    check(*shape, device)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [*SHAPES, (256, 152_064)])
def test_compiled_kernel_agrees_with_the_reference(shape: tuple[int, int], device: torch.device) -> None:
    check(*shape, device)


def test_masks_that_do_not_cover_the_vocabulary_are_refused(device: torch.device) -> None:
    logits, rows = torch.zeros(1, 65, device=device), torch.zeros(1, dtype=torch.int32, device=device)
    with pytest.raises(ValueError, match="bits has 2 words a row; 65 tokens need 3"):
        mask_tokens(logits, rows, torch.zeros(1, 2, dtype=torch.int32, device=device))
