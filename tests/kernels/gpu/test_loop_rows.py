"""The kernel places a loop's tokens and steps as the reference does."""

from __future__ import annotations

import pytest
import torch

from slipstream.kernels.gpu.loop_rows import place_loop
from slipstream.kernels.loop_rows import LoopWords, place_loop_reference


@pytest.mark.parametrize(("num_tokens", "num_rows", "max_blocks", "num_steps"), [(4, 1, 5, 1), (6, 3, 130, 5)])
def test_a_loop_is_placed_as_the_reference_does(
    num_tokens: int, num_rows: int, max_blocks: int, num_steps: int, device: torch.device
) -> None:
    generator = torch.Generator().manual_seed(num_tokens)

    def draw(most: int, *shape: int) -> torch.Tensor:
        return torch.randint(most, shape, generator=generator, dtype=torch.int32).to(device)

    words = LoopWords(
        token_ids=draw(50_000, num_tokens),
        context_lens=draw(900, num_tokens),
        token_rows=draw(num_rows, num_tokens),
        last_tokens=draw(num_tokens, num_rows),
        num_steps=draw(num_steps + 1, num_rows),
        block_tables=draw(1000, num_rows, max_blocks),
    )
    placed, expected = place_loop(words, num_steps), place_loop_reference(words, num_steps)
    for name in type(placed).__slots__:
        torch.testing.assert_close(getattr(placed, name), getattr(expected, name), rtol=0, atol=0)
