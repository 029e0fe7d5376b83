"""Prompts of a kind: read as their file means them, divided for good, and only what answers them is learned."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from slipstream.text.tokenizer import Tokenizer
from slipstream.training.chat_frame import ChatFrame
from slipstream.training.generate import Chats, Prompt
from slipstream.training.lora_text import KindOfText, digest_of, first_answers, prompts_in

PROMPTS = [Prompt((i,), answering=True) for i in range(10)]


def test_questions_are_asked_and_other_text_is_gone_on_with(
    tokenizer: Tokenizer, frame: ChatFrame, tmp_path: Path
) -> None:
    (tmp_path / "asked.jsonl").write_text(json.dumps({"prompt": "Who is liable?"}) + "\n")
    passage = "The tenant shall keep the garden in good order. " * 6
    (tmp_path / "lease.txt").write_text(f"{passage}\n\n{passage}end.")
    asked, *passages = prompts_in([tmp_path / "asked.jsonl", tmp_path / "lease.txt"], tokenizer, frame, 400)
    assert asked.token_ids == frame.question(tokenizer.encode("Who is liable?", add_special_tokens=False))
    assert len(passages) == 2
    assert passages[0].token_ids == tokenizer.encode(passage, add_special_tokens=False)[:200]
    assert all(prompt.answering for prompt in (asked, *passages))


def test_a_prompt_that_leaves_no_room_for_an_answer_is_left_out(
    tokenizer: Tokenizer, frame: ChatFrame, tmp_path: Path
) -> None:
    (tmp_path / "asked.jsonl").write_text(json.dumps({"prompt": "long " * 100}) + "\n")
    assert prompts_in([tmp_path / "asked.jsonl"], tokenizer, frame, 100) == []


def test_what_is_held_out_is_never_learned_from_even_if_it_is_there_twice() -> None:
    kind = KindOfText.of(PROMPTS * 3, num_held_out=4, seed=0)
    assert len(kind.held_out) == 4
    assert set(kind.training) | set(kind.held_out) == set(PROMPTS)
    assert not set(kind.rows(50)) & set(kind.held_out)
    assert len(kind.rows(50)) == 50
    assert KindOfText.of(PROMPTS, 4, seed=0) == kind


def test_too_little_text_is_told_with_its_number() -> None:
    with pytest.raises(ValueError, match="10 different prompts, of which 10 are held out"):
        KindOfText.of(PROMPTS, 10, seed=0)


def test_prompts_are_told_from_others_and_from_another_order() -> None:
    told = [digest_of(rows) for rows in (PROMPTS, list(PROMPTS), PROMPTS[1:], PROMPTS[::-1])]
    assert told[0] == told[1]
    assert len(set(told)) == 3


def test_only_the_answer_to_the_prompt_is_learned() -> None:
    answers = torch.tensor([[0, 1, 1, 0, 0, 1, 1], [1, 1, 0, 1, 0, 1, 0], [0, 0, 0, 0, 0, 1, 1]]).bool()
    kept = first_answers(Chats(torch.zeros(3, 7, dtype=torch.int32), answers)).answers
    assert kept.long().tolist() == [[0, 1, 1, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0, 0], [0, 0, 0, 0, 0, 1, 1]]
