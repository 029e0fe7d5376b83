"""Decoding in lockstep gives the states of a pass over whole rows."""

from __future__ import annotations

import torch

from slipstream.models.llama import LlamaModel
from slipstream.training.lockstep import DenseCache, decode


@torch.no_grad()
def test_states_are_those_of_the_whole_rows(target: LlamaModel) -> None:
    token_ids = torch.randint(3, 300, (3, 11), generator=torch.Generator().manual_seed(0))
    cache = DenseCache(target, batch=3, length=11)
    states = [decode(target, token_ids[:, position], position, cache) for position in range(11)]
    torch.testing.assert_close(torch.stack(states, 1), target.forward_dense(token_ids), rtol=1e-4, atol=1e-4)
