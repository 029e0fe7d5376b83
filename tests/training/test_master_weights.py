"""fp32 copies take the model's gradients and give it back its weights."""

from __future__ import annotations

import torch

from slipstream.models.llama import LlamaModel
from slipstream.training.draft_model import draft_from_target
from slipstream.training.master_weights import EMBEDDINGS, MasterWeights


def test_gradients_arrive_under_the_names_of_their_rows(target: LlamaModel) -> None:
    draft = draft_from_target(target, (0, 3), torch.arange(50))
    master = MasterWeights.of_draft(draft)
    draft.logits(draft.forward_dense(torch.arange(3, 9)[None])).square().sum().backward()
    fused = draft.layers[1].attention.qkv_proj.weight.grad.clone()
    master.gather_gradients()
    parts = [master.weights[f"model.layers.1.self_attn.{name}_proj.weight"].grad for name in "qkv"]
    torch.testing.assert_close(torch.cat(parts), fused)
    assert all(parameter.grad is None for parameter in draft.parameters())


def test_published_weights_are_the_models(target: LlamaModel) -> None:
    draft = draft_from_target(target, (0, 3), torch.arange(50))
    master = MasterWeights.of_draft(draft)
    changed = {name: weight + 1 for name, weight in master.weights.items()}
    before = draft.layers[0].mlp.down_proj.weight.detach().clone()
    master.load(changed)
    torch.testing.assert_close(draft.layers[0].mlp.down_proj.weight, before + 1)


def test_the_shared_embedding_is_not_among_them(target: LlamaModel) -> None:
    master = MasterWeights.of_draft(draft_from_target(target, (0,), torch.arange(50)))
    assert not set(EMBEDDINGS) & set(master.weights)
