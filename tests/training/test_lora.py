"""Training an adapter begins at the draft as it is and changes nothing else."""

from __future__ import annotations

import copy

import torch

from slipstream.models.llama import LlamaModel
from slipstream.training.generate import Chats
from slipstream.training.lora import LoraTraining
from slipstream.training.settings import LoraSettings

SETTINGS = LoraSettings(rank=4, alpha=8.0, train_tokens=800, batch=2, learning_rate=1e-2, loss_chunk=16)


def test_the_loss_falls_and_only_the_adapter_has_changed(target: LlamaModel) -> None:
    draft = copy.deepcopy(target)
    with torch.no_grad():
        for parameter in draft.layers.parameters():
            parameter.add_(0.3 * parameter.std() * torch.randn_like(parameter))
    before = {name: parameter.clone() for name, parameter in draft.named_parameters()}
    chats = Chats(torch.randint(3, 300, (4, 24), dtype=torch.int32), torch.ones(4, 24, dtype=torch.bool))
    training = LoraTraining(target, draft, torch.arange(320), chats, SETTINGS)
    losses = []
    for _ in range(12):
        losses.append(float(training.train_step(torch.arange(4))[0]))
        training.step += 1
    assert losses[-1] < 0.9 * losses[0]
    after = {name.replace(".base.", "."): parameter for name, parameter in draft.named_parameters()}
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert all(bool(up.any()) for _, up in training.adapter.matrices.values())
