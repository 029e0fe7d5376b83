"""A parallel draft's agreement, read off one packed pass, is that of blocks drafted one by one."""

from __future__ import annotations

import torch

from slipstream.models.llama import LlamaModel
from slipstream.training.pard_agreement import agreements

MASK = 319
TOKENS = torch.arange(0, 320, 2)
NUM_DRAFT_TOKENS = 3


@torch.no_grad()
def drafted(model: LlamaModel, context: torch.Tensor) -> torch.Tensor:
    packed = torch.cat((context, torch.full((NUM_DRAFT_TOKENS - 1,), MASK)))
    hidden = model.forward_dense(packed[None])[0, -NUM_DRAFT_TOKENS:]
    return TOKENS[model.logits(hidden).argmax(-1)]


def test_it_says_of_every_place_what_a_block_from_there_would_have_hit(target: LlamaModel) -> None:
    target.reduce_head(TOKENS)
    row = torch.randint(0, 320, (14,), generator=torch.Generator().manual_seed(1))
    for position in range(3, 14):  # a text that the draft foresees in part
        block = drafted(target, row[:position])
        row[position] = block[0] if position % 3 else row[position]
        row[position + 1 : position + 2] = block[1] if position % 4 == 0 else row[position + 1 : position + 2]
    (matches,) = agreements(target, TOKENS, MASK, row[None], NUM_DRAFT_TOKENS)
    for position in range(1, 14):
        block = drafted(target, row[:position])
        for step in range(NUM_DRAFT_TOKENS):
            stands = position + step < 14 and bool(block[step] == row[position + step])
            assert matches[position, step] == stands, (position, step)
    assert matches[:, 0].sum() >= 4
    assert matches[:, 1].any()
