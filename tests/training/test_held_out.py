"""Acceptance on held-out prompts, against drafting step by step."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from slipstream.models.llama import LlamaModel
from slipstream.training.chat_frame import ChatFrame
from slipstream.training.draft_model import draft_from_target
from slipstream.training.held_out import HeldOut, read_prompts

QUESTIONS = [tuple(range(60, 66)), tuple(range(80, 84)), (70, 71, 72)]


def test_a_draft_that_is_the_target_is_always_right(target: LlamaModel, frame: ChatFrame) -> None:
    held_out = HeldOut.written_by(target, frame, QUESTIONS, answer_tokens=20)
    tokens = torch.arange(target.config.vocab_size)
    whole = draft_from_target(target, range(target.config.num_layers), tokens)
    matched = held_out.acceptance(whole, tokens, 5)
    assert matched.per_position[0] == 1.0


@torch.no_grad()
def test_acceptance_is_what_drafting_step_by_step_gives(target: LlamaModel, frame: ChatFrame) -> None:
    held_out = HeldOut.written_by(target, frame, QUESTIONS, answer_tokens=20)
    tokens = torch.arange(0, 320, 2)
    draft = draft_from_target(target, (0, 1, 3), tokens)
    drafts, accepted = 0, 0
    for row, (first, end) in zip(held_out.token_ids.tolist(), held_out.spans, strict=True):
        committed = first + 1
        while committed < end:
            drafts += 1
            context = row[:committed]
            for _ in range(min(3, end - committed)):
                logits = draft.logits(draft.forward_dense(torch.tensor([context]))[0, -1])
                context.append(int(tokens[logits.argmax()]))
                if context[-1] != row[len(context) - 1]:
                    break
                accepted += 1
                committed += 1
            committed += 1
    acceptance = held_out.acceptance(draft, tokens, 3)
    assert accepted > 0
    assert (acceptance.drafts, sum(acceptance.accepted_at)) == (drafts, accepted)


def test_answers_end_where_the_target_ended_them(target: LlamaModel, frame: ChatFrame) -> None:
    held_out = HeldOut.written_by(target, frame, QUESTIONS, answer_tokens=20)
    for row, (first, end) in zip(held_out.token_ids, held_out.spans, strict=True):
        answer = row[first:end].tolist()
        assert 1 <= len(answer) <= 20
        assert frame.end_token not in answer[:-1]


def test_a_bad_line_of_a_prompt_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "Hi"}\n{"text": "Hi"}\n')
    with pytest.raises(ValueError, match=r"prompts\.jsonl:2: needs an object with a prompt"):
        read_prompts(file)
    file.write_text("")
    with pytest.raises(ValueError, match="holds no prompts"):
        read_prompts(file)
