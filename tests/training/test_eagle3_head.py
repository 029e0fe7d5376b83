"""A fresh head has the target's shape, embedding and rows, and all that it learns is what the format stores."""

from __future__ import annotations

import pytest
import torch

from slipstream.models.eagle3_checkpoint import FC, weight_slots
from slipstream.models.llama import LlamaModel
from slipstream.training.eagle3_head import FreshHead

TOKENS = torch.arange(0, 300, 3)


@pytest.fixture
def head(target: LlamaModel) -> FreshHead:
    return FreshHead(target, TOKENS, torch.Generator().manual_seed(1))


def test_embedding_and_logits_rows_are_the_targets_and_are_not_trained(target: LlamaModel, head: FreshHead) -> None:
    assert torch.equal(head.model.embedding, target.embedding)
    assert torch.equal(head.model.head, target.embedding[TOKENS])
    assert head.master_weights().weights.keys() == {FC, *weight_slots(head.config)}


def test_the_tapped_layers_are_written_down(target: LlamaModel, head: FreshHead) -> None:
    assert head.config.layer_ids == (2, 2, 1)  # of four
    assert head.config.draft_vocab_size == len(TOKENS)


def test_what_is_published_is_what_the_head_computes_with(head: FreshHead) -> None:
    master = head.master_weights()
    master.weights[FC].fill_(0.25)
    master.weights["midlayer.self_attn.k_proj.weight"].fill_(0.5)
    master.publish()
    states = [torch.ones(1, 32) for _ in range(3)]
    torch.testing.assert_close(head.features(states), torch.full((1, 32), 24.0))
    assert float(head.model.layer.attention.qkv_proj.weight.detach()[32:48].mean()) == 0.5


def test_the_same_seed_begins_alike(target: LlamaModel, head: FreshHead) -> None:
    again = FreshHead(target, TOKENS, torch.Generator().manual_seed(1))
    other = FreshHead(target, TOKENS, torch.Generator().manual_seed(2))
    mine, same, different = (one.master_weights().weights[FC] for one in (head, again, other))
    assert torch.equal(mine, same)
    assert not torch.equal(mine, different)
