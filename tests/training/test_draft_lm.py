"""Training makes the draft agree more, can be cut into slices, and its switches change only speed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from slipstream.errors import CheckpointError
from slipstream.models.llama import LlamaModel
from slipstream.training import slices
from slipstream.training.chat_frame import ChatFrame
from slipstream.training.draft_lm import DraftTraining
from slipstream.training.generate import Chats
from slipstream.training.held_out import HeldOut
from slipstream.training.settings import DraftSettings
from slipstream.training.slices import Progress

TOKENS = torch.arange(0, 300)
SETTINGS = DraftSettings(num_layers=2, draft_vocab_size=300, train_tokens=12 * 4 * 24, batch=4, loss_chunk=16)


@pytest.fixture
def chats() -> Chats:
    generator = torch.Generator().manual_seed(0)
    token_ids = torch.randint(0, 300, (10, 24), generator=generator, dtype=torch.int32)
    return Chats(token_ids, torch.rand(10, 24, generator=generator) < 0.6)


@pytest.fixture
def held_out(target: LlamaModel, frame: ChatFrame) -> HeldOut:
    return HeldOut.written_by(target, frame, [tuple(range(60, 70)), tuple(range(80, 90))], answer_tokens=12)


def trained(target: LlamaModel, chats: Chats, held_out: HeldOut, settings: DraftSettings) -> list[Progress]:
    progress: list[Progress] = []
    training = DraftTraining(target, TOKENS, chats, settings)
    assert slices.run(training, 600.0, held_out, progress.append, every=0.0)
    return progress


def test_the_loss_falls(target: LlamaModel, chats: Chats, held_out: HeldOut) -> None:
    progress = trained(target, chats, held_out, replace(SETTINGS, train_tokens=80 * 4 * 24))
    losses = [report.loss for report in progress]
    assert losses[-1] < 0.8 * losses[0]
    assert progress[-1].accepted > progress[0].accepted
    assert progress[-1].held_out is not None


def test_keeping_the_targets_states_changes_nothing(target: LlamaModel, chats: Chats, held_out: HeldOut) -> None:
    with_states = trained(target, chats, held_out, SETTINGS)
    without = trained(target, chats, held_out, replace(SETTINGS, keep_states=False))
    assert with_states[-1].loss == pytest.approx(without[-1].loss, rel=1e-4)


def test_a_training_in_slices_ends_where_one_without_does(
    target: LlamaModel, chats: Chats, held_out: HeldOut, tmp_path: Path
) -> None:
    whole = DraftTraining(target, TOKENS, chats, SETTINGS)
    slices.run(whole, 600.0, held_out, lambda progress: None, every=600.0)
    num_slices, first = 0, DraftTraining(target, TOKENS, chats, SETTINGS)
    while not slices.run(first, 0.0, held_out, lambda progress: None, every=600.0):  # no time: one step a slice
        slices.save(first, tmp_path / "state")
        first = DraftTraining(target, TOKENS, chats, SETTINGS)
        slices.resume(first, tmp_path / "state")
        num_slices += 1
    assert num_slices == whole.num_steps - 1
    for name, weight in whole.master.weights.items():
        # A state is rounded to fp16 and bf16, and the norms' optimiser starts anew.
        torch.testing.assert_close(first.master.weights[name], weight, rtol=0.1, atol=0.02)


def test_a_state_made_under_other_settings_is_refused(target: LlamaModel, chats: Chats, tmp_path: Path) -> None:
    slices.save(DraftTraining(target, TOKENS, chats, SETTINGS), tmp_path / "state")
    other = DraftTraining(target, TOKENS, chats, replace(SETTINGS, learning_rate=1e-4))
    with pytest.raises(CheckpointError, match=r"learning_rate = 0\.003, not 0\.0001"):
        slices.resume(other, tmp_path / "state")


def test_embedding_and_head_stay_the_targets(target: LlamaModel, chats: Chats, held_out: HeldOut) -> None:
    training = DraftTraining(target, TOKENS, chats, SETTINGS)
    slices.run(training, 600.0, held_out, lambda progress: None, every=600.0)
    assert training.draft.head is not None
    assert torch.equal(training.draft.head, target.embedding[TOKENS])
    assert torch.equal(training.draft.embedding, target.embedding)
