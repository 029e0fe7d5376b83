"""A draft starts as layers of its target, spread over the depth, over a part of its vocabulary."""

from __future__ import annotations

import pytest
import torch

from slipstream.models.llama import LlamaModel
from slipstream.training.draft_model import draft_from_target, spread_layers


@pytest.mark.parametrize(
    ("target_layers", "layers", "expected"),
    [(30, 4, (0, 10, 19, 29)), (30, 2, (0, 29)), (4, 4, (0, 1, 2, 3)), (9, 1, (0,))],
)
def test_layers_reach_from_the_first_to_the_last(target_layers: int, layers: int, expected: tuple[int, ...]) -> None:
    assert spread_layers(target_layers, layers) == expected


def test_more_layers_than_the_target_has_are_refused() -> None:
    with pytest.raises(ValueError, match=r"num_layers is 5; it must be in 1\.\.4"):
        spread_layers(4, 5)


@torch.no_grad()
def test_all_layers_and_tokens_give_the_targets_own_logits(target: LlamaModel) -> None:
    token_ids = torch.arange(3, 20)[None]
    expected = target.logits(target.forward_dense(token_ids))
    tokens = torch.tensor([5, 17, 200])
    draft = draft_from_target(target, (0, 1, 2, 3), tokens)
    torch.testing.assert_close(draft.logits(draft.forward_dense(token_ids)), expected[..., tokens])
