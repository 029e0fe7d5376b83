"""Training makes a head draft what the target writes, and what it measures is what the drafter service would reach."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from drafter_svc.proposers.eagle3 import Eagle3Drafts, load_eagle3_drafts
from drafter_svc.proposers.proposer import Drawing, Row
from slipstream.config import EngineConfig
from slipstream.models.eagle3_checkpoint import load_projection, save_eagle3
from slipstream.models.llama import LlamaModel
from slipstream.models.loader import load_model
from slipstream.request import SamplingParams, VerificationMode
from slipstream.training import slices
from slipstream.training.acceptance import Acceptance
from slipstream.training.chat_frame import ChatFrame
from slipstream.training.eagle3 import Eagle3Training
from slipstream.training.generate import Chats, Prompt, WritingSettings, write_chats
from slipstream.training.held_out import HeldOut
from slipstream.training.settings import Eagle3Settings
from slipstream.training.slices import Progress

CPU = torch.device("cpu")
TOKENS = torch.arange(0, 300)
LENGTH = 48
SETTINGS = Eagle3Settings(
    draft_vocab_size=300, unroll_steps=3, train_tokens=60 * 8 * LENGTH, batch=8, loss_chunk=512, num_draft_tokens=3
)
GREEDY = Drawing(
    sampling=SamplingParams(temperature=0.0), mode=VerificationMode.RATIO, seed=0, draft_key=0, sample_index=0
)


@pytest.fixture(scope="module")
def target(target_folder: Path) -> LlamaModel:
    return load_model(target_folder, torch.float32, CPU)


@pytest.fixture(scope="module")
def chats(target: LlamaModel, frame: ChatFrame) -> Chats:
    prompts = [Prompt(frame.question((60 + i % 30, 61 + i % 7, 70 + i % 11)), answering=True) for i in range(64)]
    settings = WritingSettings(length=LENGTH, answer_temperatures=(0.0, 0.5), max_answer_tokens=40)
    return write_chats(target, frame, prompts, settings, torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def held_out(target: LlamaModel, frame: ChatFrame) -> HeldOut:
    questions = [(100 + i, 101 + 3 * i, 90) for i in range(6)]
    return HeldOut.written_by(target, frame, questions, answer_tokens=30)


@pytest.fixture(scope="module")
def trained(target: LlamaModel, chats: Chats, held_out: HeldOut) -> tuple[Eagle3Training, list[Progress]]:
    progress: list[Progress] = []
    training = Eagle3Training(target, TOKENS, chats, SETTINGS)
    assert slices.run(training, 100.0, held_out, progress.append, every=0.0)
    return training, progress


def test_the_loss_falls_and_held_out_acceptance_rises_far_above_chance(
    target: LlamaModel, chats: Chats, held_out: HeldOut, trained: tuple[Eagle3Training, list[Progress]]
) -> None:
    before = Eagle3Training(target, TOKENS, chats, SETTINGS).acceptance(held_out)
    _, progress = trained
    assert progress[-1].loss < 0.6 * progress[0].loss
    assert progress[-1].accepted > progress[0].accepted
    after = progress[-1].held_out
    assert after is not None
    assert after.length > before.length + 0.8
    assert min(after.per_position) > 0.3  # chance is 1 in 300


def test_features_of_the_layers_beside_cost_acceptance(
    held_out: HeldOut, trained: tuple[Eagle3Training, list[Progress]], monkeypatch: pytest.MonkeyPatch
) -> None:
    training, _ = trained
    right = training.acceptance(held_out)
    for shift in (-1, 1):
        layer_ids = tuple(layer + shift for layer in training.head.config.layer_ids)
        with monkeypatch.context() as patch:
            patch.setattr(training.head, "config", replace(training.head.config, layer_ids=layer_ids))
            assert training.acceptance(held_out).length < right.length - 0.3


def stored(training: Eagle3Training, folder: Path) -> Path:
    save_eagle3(folder, training.head.config, training.master.weights, TOKENS, torch.float32)
    return folder


def drafted(drafter: Eagle3Drafts, features: torch.Tensor, row: list[int], committed: int, most: int) -> list[int]:
    """Greedy drafts as the service makes them: committed tokens with features, then the head's own output."""
    context, fed, drafts = row[:committed], 0, list[int]()
    for count in range(most):
        bits = features[: committed - 1].view(torch.int16).numpy().view("uint16")
        asked = Row(
            token_ids=context[fed:],
            start=fed,
            block_ids=range(drafter.limits.num_blocks),
            drawing=GREEDY,
            draw=count,
            num_wanted=1,
            num_outcomes=1,
            features=bits if fed == 0 else None,
        )
        ((proposal,),) = drafter.propose([asked])
        fed = len(context)
        context.append(proposal.token.token_id)
        drafts.append(context[-1])
    return drafts


@torch.no_grad()
def test_acceptance_measured_offline_is_what_the_drafter_reaches(
    target: LlamaModel,
    target_folder: Path,
    held_out: HeldOut,
    trained: tuple[Eagle3Training, list[Progress]],
    tmp_path: Path,
) -> None:
    training, _ = trained
    folder = stored(training, tmp_path / "head")
    engine = EngineConfig(model=folder, target_model=target_folder, dtype="float32", num_kv_blocks=16)
    drafter = load_eagle3_drafts(engine, num_target_ids=320, num_kept=8)
    projection = load_projection(folder, torch.float32, CPU)
    drafts, accepted_at = 0, [0] * SETTINGS.num_draft_tokens
    for row, (first, end) in zip(held_out.token_ids.tolist(), held_out.spans, strict=True):
        states = target.forward_dense_tapped(torch.tensor([row]), training.head.config.layer_ids)[1]
        features = projection(states)[0].bfloat16()
        committed = first + 1
        while committed < end:
            made = drafted(drafter, features, row, committed, min(SETTINGS.num_draft_tokens, end - committed))
            matches = [draft == token for draft, token in zip(made, row[committed:], strict=False)]
            run = [*matches, False].index(False)
            for position in range(run):
                accepted_at[position] += 1
            drafts += 1
            committed += run + 1
    assert Acceptance(drafts, tuple(accepted_at)) == training.acceptance(held_out)


def test_a_training_in_slices_ends_where_one_without_does(
    target: LlamaModel, chats: Chats, held_out: HeldOut, tmp_path: Path
) -> None:
    settings = replace(SETTINGS, train_tokens=4 * 8 * LENGTH)
    whole, first = (Eagle3Training(target, TOKENS, chats, settings) for _ in range(2))
    slices.run(whole, 100.0, held_out, lambda progress: None, every=100.0)
    while not slices.run(first, 0.0, held_out, lambda progress: None, every=100.0):  # no time: one step a slice
        slices.save(first, tmp_path / "state")
        first = Eagle3Training(target, TOKENS, chats, settings)
        slices.resume(first, tmp_path / "state")
    for name, weight in whole.master.weights.items():
        # A state is rounded to fp16 and bf16, and the norms' optimiser starts anew.
        torch.testing.assert_close(first.master.weights[name], weight, rtol=0.1, atol=0.02)
