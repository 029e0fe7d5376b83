"""The target writes chats, both turns, in large batches that stay in lockstep. Knows no files and no training.

All rows are at the same position, so the KV cache is dense and attention needs no mask. A prompt is fed token by token
beside rows that already write; when a turn ends, the template's tokens for the next turn are fed the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from slipstream.models.llama import LlamaModel
from slipstream.training.chat_frame import ChatFrame
from slipstream.training.lockstep import DenseCache, decode


@dataclass(frozen=True, kw_only=True, slots=True)
class WritingSettings:
    """How chats are written. Raises ValueError naming field and value."""

    length: int = 768  # tokens of each row
    user_temperature: float = 0.8
    answer_temperatures: tuple[float, ...] = (0.0, 0.0, 0.5, 0.7, 1.0)  # rows take turns
    max_question_tokens: int = 160
    max_answer_tokens: int = 256

    def __post_init__(self) -> None:
        for name in ("length", "max_question_tokens", "max_answer_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be >= 1")
        if not self.answer_temperatures or min(self.answer_temperatures, default=0) < 0 or self.user_temperature < 0:
            raise ValueError(
                f"temperatures are {self.user_temperature}, {self.answer_temperatures}; give some, all >= 0"
            )


@dataclass(frozen=True, slots=True)
class Prompt:
    token_ids: tuple[int, ...]
    answering: bool  # the answer comes next; else the user's turn goes on


@dataclass(frozen=True, slots=True)
class Chats:
    """Written rows, and which of their tokens the target wrote as an answer."""

    token_ids: torch.Tensor  # [rows, length] int32, on the CPU
    answers: torch.Tensor  # [rows, length] bool


class TurnTaking:
    """What stands at each position of every row: prompt, template, or what the model sampled."""

    def __init__(
        self, frame: ChatFrame, prompts: Sequence[Prompt], settings: WritingSettings, device: torch.device
    ) -> None:
        longest = max(len(prompt.token_ids) for prompt in prompts)
        padded = [prompt.token_ids + (frame.end_token,) * (longest - len(prompt.token_ids)) for prompt in prompts]
        bridges = (frame.to_question[1:], frame.to_answer[1:])
        width = max(map(len, bridges)) + 1
        self._end_token = frame.end_token
        self._prompts = torch.tensor(padded, device=device)
        self._prompt_lens = torch.tensor([len(prompt.token_ids) for prompt in prompts], device=device)
        self._bridges = torch.tensor([b + (frame.end_token,) * (width - len(b)) for b in bridges], device=device)
        self._bridge_lens = torch.tensor([len(b) for b in bridges], device=device)
        self._limits = torch.tensor([settings.max_question_tokens, settings.max_answer_tokens], device=device)
        self._answering = torch.tensor([prompt.answering for prompt in prompts], dtype=torch.long, device=device)
        self._bridge_at = torch.full_like(self._answering, width - 1)
        self._turn_lens = torch.zeros_like(self._answering)
        temperatures = torch.tensor(settings.answer_temperatures, device=device)
        self._answer_temperatures = temperatures[torch.arange(len(prompts), device=device) % len(temperatures)]
        self._user_temperature = torch.tensor(settings.user_temperature, device=device)

    @property
    def temperatures(self) -> torch.Tensor:
        """[rows]"""
        return torch.where(self._answering.bool(), self._answer_temperatures, self._user_temperature)

    def place(self, position: int, sampled: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens [rows] that stand at `position`, and which of them are the model's answer."""
        in_prompt = position < self._prompt_lens
        bridging = ~in_prompt & (self._bridge_at < self._bridge_lens[self._answering])
        free = ~in_prompt & ~bridging
        cut = free & (self._turn_lens >= self._limits[self._answering])
        tokens = torch.where(cut, self._end_token, sampled)
        tokens = torch.where(bridging, self._bridges[self._answering, self._bridge_at], tokens)
        tokens = torch.where(in_prompt, self._prompts[:, min(position, self._prompts.shape[1] - 1)], tokens)
        is_answer = free & ~cut & self._answering.bool()
        self._advance(free, bridging, free & (tokens == self._end_token))
        return tokens, is_answer

    def _advance(self, free: torch.Tensor, bridging: torch.Tensor, ended: torch.Tensor) -> None:
        self._answering = self._answering ^ ended.long()
        self._bridge_at = torch.where(ended, 0, self._bridge_at + bridging.long())
        self._turn_lens = torch.where(ended, 0, self._turn_lens + free.long())


@torch.no_grad()
def write_chats(
    model: LlamaModel,
    frame: ChatFrame,
    prompts: Sequence[Prompt],
    settings: WritingSettings,
    generator: torch.Generator,  # on the model's device
) -> Chats:
    """One row for every prompt, all of `settings.length` tokens."""
    device = model.embedding.device
    turns = TurnTaking(frame, prompts, settings, device)
    cache = DenseCache(model, len(prompts), settings.length)
    token_ids = torch.empty((settings.length, len(prompts)), dtype=torch.int32, device=device)
    answers = torch.empty((settings.length, len(prompts)), dtype=torch.bool, device=device)
    sampled = torch.zeros(len(prompts), dtype=torch.long, device=device)
    for position in range(settings.length):
        tokens, answers[position] = turns.place(position, sampled)
        token_ids[position] = tokens
        hidden = decode(model, tokens, position, cache)
        sampled = sample(model.logits(hidden), turns.temperatures, generator)
    return Chats(token_ids.T.contiguous().cpu(), answers.T.contiguous().cpu())


def sample(logits: torch.Tensor, temperatures: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """argmax(logits + temperature * Gumbel noise): a draw at that temperature, and the likeliest token at 0."""
    noise = torch.empty(logits.shape, dtype=torch.float32, device=logits.device)
    noise.exponential_(generator=generator).clamp_min_(1e-20).log_()
    return noise.mul_(-temperatures[:, None]).add_(logits).argmax(-1)


def in_waves(prompts: Sequence[Prompt], batch: int) -> Iterator[Sequence[Prompt]]:
    """Prompts in groups of at most `batch`, each to be written in one lockstep pass."""
    for start in range(0, len(prompts), batch):
        yield prompts[start : start + batch]
