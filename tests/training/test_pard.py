"""Training makes the later tokens of a block agree, leaves the first as good, and can be cut into slices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from slipstream.models.llama import LlamaModel
from slipstream.training import slices
from slipstream.training.chat_frame import ChatFrame
from slipstream.training.draft_model import draft_from_target
from slipstream.training.generate import Chats, Prompt, WritingSettings, write_chats
from slipstream.training.held_out import HeldOut
from slipstream.training.pard import PardTraining, weigh_masks
from slipstream.training.pard_layout import ParallelLayout
from slipstream.training.settings import PardSettings
from slipstream.training.slices import Progress

TOKENS = torch.arange(0, 320)
MASK = 319
LENGTH = 48
SETTINGS = PardSettings(
    num_parallel=4, mask_token=MASK, train_tokens=45 * 4 * LENGTH, batch=4, loss_chunk=256, num_draft_tokens=4,
    learning_rate=1e-2,
)  # fmt: skip


@pytest.fixture
def chats(target: LlamaModel, frame: ChatFrame) -> Chats:
    prompts = [Prompt(frame.question((40 + i % 16, 60)), answering=True) for i in range(32)]
    settings = WritingSettings(length=LENGTH, answer_temperatures=(0.0,))
    return write_chats(target, frame, prompts, settings, torch.Generator().manual_seed(0))


@pytest.fixture
def held_out(target: LlamaModel, frame: ChatFrame) -> HeldOut:
    return HeldOut.written_by(target, frame, [(90, 60), (91, 60), (70, 61)], answer_tokens=24)


def training(target: LlamaModel, chats: Chats, settings: PardSettings = SETTINGS) -> PardTraining:
    """Of a draft that is the target itself: its first token is always right, the others are not."""
    draft = draft_from_target(target, range(target.config.num_layers), TOKENS)
    return PardTraining(target, draft, TOKENS, chats, settings)


def test_the_loss_falls_and_later_tokens_of_held_out_answers_are_accepted_more(
    target: LlamaModel, chats: Chats, held_out: HeldOut
) -> None:
    trained = training(target, chats)
    before = trained.acceptance(held_out)
    progress: list[Progress] = []
    assert slices.run(trained, 600.0, held_out, progress.append, every=600.0)
    after = trained.acceptance(held_out)
    assert progress[-1].loss < 0.8 * progress[0].loss
    assert before.per_position[0] == 1.0
    assert sum(after.per_position[1:]) > sum(before.per_position[1:]) + 0.3
    one_by_one = held_out.acceptance(trained.draft, TOKENS, SETTINGS.num_draft_tokens)
    assert one_by_one.per_position[0] > 0.8, "it is still a draft LM"


def test_text_that_the_target_did_not_write_is_not_learned_from(target: LlamaModel, chats: Chats) -> None:
    sums = training(target, chats).train_step(torch.arange(8))
    few = Chats(chats.token_ids, chats.answers & (torch.arange(LENGTH) < LENGTH // 2))
    fewer = training(target, few).train_step(torch.arange(8))
    assert 0 < fewer[2] < 0.7 * sums[2]


def test_masks_count_less_than_tokens() -> None:
    layout = ParallelLayout.of(3, [torch.tensor([2, 0])])
    hidden = torch.ones(2, 5, 4, requires_grad=True)
    weigh_masks(hidden, layout, 0.5)
    hidden.sum().backward()
    assert hidden.grad is not None
    assert hidden.grad[1, :, 0].tolist() == [1, 1, 1, 0.5, 0.5]


def test_keeping_the_targets_states_changes_nothing(target: LlamaModel, chats: Chats) -> None:
    rows = torch.tensor([3, 1, 7, 5, 9, 11, 20, 31])
    kept = training(target, chats).train_step(rows)
    anew = training(target, chats, replace(SETTINGS, keep_states=False)).train_step(rows)
    torch.testing.assert_close(kept, anew, rtol=1e-4, atol=1e-4)


def test_a_training_in_slices_ends_where_one_without_does(
    target: LlamaModel, chats: Chats, held_out: HeldOut, tmp_path: Path
) -> None:
    settings = replace(SETTINGS, train_tokens=4 * 4 * LENGTH)
    whole, part = training(target, chats, settings), training(target, chats, settings)
    slices.run(whole, 600.0, held_out, lambda progress: None, every=600.0)
    while not slices.run(part, 0.0, held_out, lambda progress: None, every=600.0):  # no time: one step a slice
        slices.save(part, tmp_path / "state")
        part = training(target, chats, settings)
        slices.resume(part, tmp_path / "state")
    for name, weight in whole.master.weights.items():
        # A state is rounded to fp16 and bf16, and the norms' optimiser starts anew.
        torch.testing.assert_close(part.master.weights[name], weight, rtol=0.1, atol=0.04)
