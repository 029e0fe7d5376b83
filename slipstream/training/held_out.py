"""Acceptance on prompts that training never saw. Knows the target's answers to them and a draft model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from slipstream.models.llama import LlamaModel
from slipstream.training.acceptance import Acceptance, greedy_acceptance
from slipstream.training.chat_frame import ChatFrame
from slipstream.training.generate import Chats, Prompt, WritingSettings, write_chats


def read_utf8(file: Path) -> str:
    """Raises ValueError naming a file that is no text."""
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file}: is no UTF-8 text: {error}") from error


def read_prompts(file: Path) -> list[str]:
    """One JSON object with a `prompt` on each line. Raises ValueError naming file and line."""
    prompts = []
    for number, line in enumerate(read_utf8(file).splitlines(), 1):
        try:
            prompts.append(str(json.loads(line)["prompt"]))
            if not prompts[-1]:
                raise ValueError
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{file}:{number}: needs an object with a prompt, as {{'prompt': 'Hello'}}") from error
    if not prompts:
        raise ValueError(f"{file}: holds no prompts")
    return prompts


@dataclass(frozen=True, slots=True)
class HeldOut:
    """The target's greedy answers, each row a prompt and its answer."""

    token_ids: torch.Tensor  # [prompts, length]
    spans: tuple[tuple[int, int], ...]  # first answer token, and one past the last

    @classmethod
    def written_by(
        cls, target: LlamaModel, frame: ChatFrame, questions: Sequence[tuple[int, ...]], answer_tokens: int
    ) -> HeldOut:
        prompts = [Prompt(frame.question(question), answering=True) for question in questions]
        return cls.answers_to(target, frame, prompts, answer_tokens)

    @classmethod
    def answers_to(cls, target: LlamaModel, frame: ChatFrame, prompts: Sequence[Prompt], answer_tokens: int) -> HeldOut:
        """Of prompts as they are, in a chat or not."""
        length = max(len(prompt.token_ids) for prompt in prompts) + answer_tokens
        settings = WritingSettings(length=length, answer_temperatures=(0.0,), max_answer_tokens=answer_tokens)
        generator = torch.Generator(target.embedding.device)
        chats = write_chats(target, frame, prompts, settings, generator)
        return cls(chats.token_ids, tuple(_first_answer(chats, i, len(p.token_ids)) for i, p in enumerate(prompts)))

    def answer_tokens(self) -> torch.Tensor:
        return torch.cat([row[first:end] for row, (first, end) in zip(self.token_ids, self.spans, strict=True)])

    def acceptance(self, draft: LlamaModel, tokens: torch.Tensor, num_draft_tokens: int) -> Acceptance:
        """Of greedy drafting. `tokens` are the target's ids of the draft's vocabulary."""
        matches = agreements(draft, tokens, self.token_ids)
        rows = [row[first:end] for row, (first, end) in zip(matches, self.spans, strict=True)]
        return greedy_acceptance(rows, num_draft_tokens)


@torch.no_grad()
def agreements(draft: LlamaModel, tokens: torch.Tensor, token_ids: torch.Tensor) -> npt.NDArray[np.bool_]:
    """[rows, length]: whether the draft's likeliest token after the ones before is the one that stands there."""
    device = draft.embedding.device
    token_ids = token_ids.to(device)
    result = torch.zeros(token_ids.shape, dtype=torch.bool, device=device)
    for row, agrees in zip(token_ids, result, strict=True):
        logits = draft.logits(draft.forward_dense(row[None, :-1].long())[0])
        agrees[1:] = tokens.to(device)[logits.argmax(-1)] == row[1:]
    return np.asarray(result.cpu().numpy())


def _first_answer(chats: Chats, row: int, start: int) -> tuple[int, int]:
    written = chats.answers[row, start:]
    length = len(written) if bool(written.all()) else int((~written).long().argmax())
    return start, start + length
