"""Chats hold their prompts, then turn after turn, and only the model's own answer tokens are marked."""

from __future__ import annotations

import pytest
import torch

from slipstream.models.llama import LlamaModel
from slipstream.training.chat_frame import ChatFrame
from slipstream.training.generate import Prompt, TurnTaking, WritingSettings, in_waves, sample, write_chats

FRAME = ChatFrame(head=(10, 11), to_answer=(2, 20, 21), to_question=(2, 30), end_token=2)


def placed(prompt: Prompt, sampled: list[int], settings: WritingSettings) -> tuple[list[int], list[bool]]:
    """One row, when the model samples these tokens at positions 0, 1, ..."""
    turns = TurnTaking(FRAME, [prompt], settings, torch.device("cpu"))
    steps = [turns.place(position, torch.tensor([token])) for position, token in enumerate(sampled)]
    return [int(tokens) for tokens, _ in steps], [bool(answer) for _, answer in steps]


def test_turns_follow_each_other_with_the_templates_tokens_between() -> None:
    sampled = [50, 51, 52, 2, 54, 55, 56, 57, 2, 59, 60]
    tokens, answers = placed(Prompt(FRAME.opening((40,)), answering=False), sampled, WritingSettings())
    #                 prompt      question  end  bridge  answer  end bridge question
    assert tokens == [10, 11, 40, 2, 20, 21, 56, 57, 2, 30, 60]
    assert [i for i, answer in enumerate(answers) if answer] == [6, 7, 8]


def test_a_whole_question_is_answered_at_once() -> None:
    tokens, answers = placed(Prompt(FRAME.question((40,)), answering=True), [50] * 8, WritingSettings())
    assert tokens == [10, 11, 40, 2, 20, 21, 50, 50]
    assert answers == [False] * 6 + [True] * 2


def test_a_turn_too_long_is_ended_and_its_end_is_not_the_models() -> None:
    settings = WritingSettings(max_answer_tokens=2)
    tokens, answers = placed(Prompt(FRAME.question(()), answering=True), [50] * 10, settings)
    assert tokens == [10, 11, 2, 20, 21, 50, 50, 2, 30, 50]
    assert answers == [False] * 5 + [True, True, False, False, False]


def test_temperature_0_takes_the_likeliest_token_and_1_draws_from_the_law() -> None:
    logits = torch.log(torch.tensor([0.2, 0.5, 0.3])).expand(20_000, 3)
    generator = torch.Generator().manual_seed(0)
    assert sample(logits, torch.zeros(20_000), generator).unique().tolist() == [1]
    shares = torch.bincount(sample(logits, torch.ones(20_000), generator)) / 20_000
    torch.testing.assert_close(shares, torch.tensor([0.2, 0.5, 0.3]), atol=0.015, rtol=0)


def test_greedy_answers_are_the_models_own_continuation(target: LlamaModel, frame: ChatFrame) -> None:
    prompts = [Prompt(frame.question((70, 71, 72)), answering=True), Prompt(frame.question((90,)), answering=True)]
    settings = WritingSettings(length=60, answer_temperatures=(0.0,))
    chats = write_chats(target, frame, prompts, settings, torch.Generator())
    with torch.no_grad():
        expected = target.logits(target.forward_dense(chats.token_ids.long())).argmax(-1)[:, :-1]
    written = chats.answers[:, 1:]
    assert written.sum() > 40
    assert torch.equal(chats.token_ids[:, 1:][written].long(), expected[written])


def test_waves_hold_all_prompts_in_order() -> None:
    prompts = [Prompt((i,), answering=True) for i in range(7)]
    assert [len(wave) for wave in in_waves(prompts, 3)] == [3, 3, 1]


def test_bad_settings_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="length is 0"):
        WritingSettings(length=0)
    with pytest.raises(ValueError, match="temperatures"):
        WritingSettings(answer_temperatures=(-1.0,))
