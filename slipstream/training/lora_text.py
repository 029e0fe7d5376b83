"""Prompts of one kind, those to learn from and those to measure with apart. Knows files and tokens; no model."""

from __future__ import annotations

import hashlib
import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slipstream.text.tokenizer import Tokenizer
from slipstream.training.chat_frame import ChatFrame
from slipstream.training.generate import Chats, Prompt
from slipstream.training.held_out import read_prompts
from slipstream.training.questions import passages_of


@dataclass(frozen=True, slots=True)
class KindOfText:
    """No prompt is in both; each is there once."""

    training: tuple[Prompt, ...]
    held_out: tuple[Prompt, ...]

    @classmethod
    def of(cls, prompts: Sequence[Prompt], num_held_out: int, seed: int) -> KindOfText:
        distinct = list(dict.fromkeys(prompts))
        if len(distinct) <= num_held_out:
            raise ValueError(
                f"{len(distinct)} different prompts, of which {num_held_out} are held out; "
                "give more text or lower --held-out"
            )
        random.Random(seed).shuffle(distinct)
        return cls(tuple(distinct[num_held_out:]), tuple(distinct[:num_held_out]))

    def rows(self, count: int) -> list[Prompt]:
        """So many prompts to write to, from the beginning again when all were taken."""
        return list(itertools.islice(itertools.cycle(self.training), count))


def prompts_in(files: Sequence[Path], tokenizer: Tokenizer, frame: ChatFrame, most_tokens: int) -> list[Prompt]:
    """A .jsonl file holds questions for the chat template; of any other text, passages are to be gone on with."""

    def encode(text: str) -> tuple[int, ...]:
        return tokenizer.encode(text, add_special_tokens=False)

    prompts = []
    for file in files:
        if file.suffix == ".jsonl":
            prompts += [frame.question(encode(text)) for text in read_prompts(file)]
        else:
            passages = passages_of(file.read_text(encoding="utf-8"))
            prompts += [encode(passage)[: most_tokens // 2] for passage in passages]
    return [Prompt(token_ids, answering=True) for token_ids in prompts if 0 < len(token_ids) <= most_tokens]


def digest_of(rows: Sequence[Prompt]) -> str:
    """Tells other prompts, and another order of them, apart."""
    return hashlib.sha256(repr([prompt.token_ids for prompt in rows]).encode()).hexdigest()[:16]


def first_answers(chats: Chats) -> Chats:
    """What was written to the prompts; the chats go on, and what follows is of no kind."""
    begun = chats.answers.cumsum(1) > 0
    ended = (begun & ~chats.answers).cumsum(1) > 0
    return Chats(chats.token_ids, chats.answers & ~ended)
