"""Chats are written once, kept in files, and never hold an evaluation prompt."""

from __future__ import annotations

from pathlib import Path

import torch

from slipstream.models.llama import LlamaModel
from slipstream.text.tokenizer import Tokenizer
from slipstream.training.chat_frame import ChatFrame
from slipstream.training.corpus import beginnings, load_apart, write_missing_chats
from slipstream.training.generate import Prompt
from slipstream.training.settings import ChatSettings

SETTINGS = ChatSettings(chat_tokens=300, length=60, batch=2)


def test_beginnings_depend_on_the_seed_alone(tokenizer: Tokenizer, frame: ChatFrame) -> None:
    first, again, other = (beginnings(frame, tokenizer, 30, seed) for seed in (1, 1, 2))
    assert first == again != other
    assert {prompt.answering for prompt in first} == {True, False}


def test_text_of_the_users_own_is_asked_about(tokenizer: Tokenizer, frame: ChatFrame, tmp_path: Path) -> None:
    file = tmp_path / "own.txt"
    file.write_text("\n\n".join(f"qq{i} " * 40 for i in range(3000)))
    prompts = beginnings(frame, tokenizer, 300, 0, [file])
    mark = tokenizer.encode("qq")
    assert any(ids[i : i + 2] == mark for ids in (prompt.token_ids for prompt in prompts) for i in range(len(ids)))


def test_only_what_is_missing_is_written(target: LlamaModel, frame: ChatFrame, tmp_path: Path) -> None:
    prompts = [Prompt(frame.question((70 + i,)), answering=True) for i in range(5)]
    reports: list[tuple[int, int]] = []
    files = write_missing_chats(target, frame, prompts, SETTINGS, tmp_path, lambda *report: reports.append(report))
    assert reports == [(2, 5), (4, 5), (5, 5)]
    before = [file.read_bytes() for file in files]
    files[1].unlink()
    stamp = files[0].stat().st_mtime_ns
    write_missing_chats(target, frame, prompts, SETTINGS, tmp_path, lambda *report: None)
    assert files[0].stat().st_mtime_ns == stamp
    assert [file.read_bytes()[:-200] for file in files] == [content[:-200] for content in before]


def test_prompts_that_fill_half_a_row_are_left_out(target: LlamaModel, frame: ChatFrame, tmp_path: Path) -> None:
    prompts = [
        Prompt(frame.question(tuple(range(60, 100))), answering=True),
        Prompt(frame.question((70,)), answering=True),
    ]
    files = write_missing_chats(target, frame, prompts, SETTINGS, tmp_path, lambda *report: None)
    assert len(load_apart(files, [(1, 2, 3, 4, 5, 6, 7, 8)])[0].token_ids) == 1


def test_rows_that_hold_an_evaluation_prompt_are_left_out(target: LlamaModel, frame: ChatFrame, tmp_path: Path) -> None:
    question = tuple(range(60, 70))
    prompts = [Prompt(frame.question(question), answering=True), Prompt(frame.question((70,)), answering=True)]
    files = write_missing_chats(target, frame, prompts, SETTINGS, tmp_path, lambda *report: None)
    chats, left_out = load_apart(files, [question])
    assert left_out == 1
    assert not bool((chats.token_ids[:, : len(frame.head) + 1] == torch.tensor([*frame.head, 60])).all(1).any())
