"""What every distillation does: it learns from what the target wrote, and from nothing else."""

from __future__ import annotations

import torch

from slipstream.models.llama import LlamaModel
from slipstream.training.draft_lm import DraftTraining
from slipstream.training.generate import Chats
from slipstream.training.settings import DraftSettings

SETTINGS = DraftSettings(num_layers=4, draft_vocab_size=320, train_tokens=1000, batch=2, loss_chunk=16)


def training(target: LlamaModel, answers: torch.Tensor) -> DraftTraining:
    return DraftTraining(target, torch.arange(320), Chats(torch.arange(40).reshape(2, 20).int(), answers), SETTINGS)


def test_tokens_that_the_target_did_not_write_are_not_learned(target: LlamaModel) -> None:
    answers = torch.zeros(2, 20, dtype=torch.bool)
    answers[0, 5:9] = answers[1, 0] = True  # nothing stands before a row's first token
    _, _, count = training(target, answers).train_step(torch.tensor([0, 1])).tolist()
    assert count == 4


def test_a_draft_that_is_the_target_has_nothing_to_learn(target: LlamaModel) -> None:
    loss, accepted, count = training(target, torch.ones(2, 20).bool()).train_step(torch.tensor([0, 1])).tolist()
    assert abs(loss) < 1e-3 * count
    assert accepted > 0.999 * count
