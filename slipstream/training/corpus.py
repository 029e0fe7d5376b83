"""The chats that a training learns from: begun here, written by the target, kept in files. Knows no draft model."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

from slipstream.models.llama import LlamaModel
from slipstream.text.tokenizer import Tokenizer
from slipstream.training.chat_frame import ChatFrame
from slipstream.training.dataset import keep_rows, load_chats, save_chats
from slipstream.training.generate import Chats, Prompt, WritingSettings, in_waves, write_chats
from slipstream.training.questions import OPENINGS, packaged_passages, passage_questions, passages_of, topic_questions
from slipstream.training.separation import contaminated, require_apart
from slipstream.training.settings import ChatSettings

# Shares of the rows, by how they begin: nothing, a first word, a question about a topic, a task on a passage.
SHARES = {"free": 0.45, "opening": 0.2, "topic": 0.25, "passage": 0.1}


def beginnings(
    frame: ChatFrame, tokenizer: Tokenizer, count: int, seed: int, text_files: Sequence[Path] = ()
) -> list[Prompt]:
    """`count` prompts in an order that depends on `seed` alone. `text_files` add their paragraphs to the passages."""
    rng = random.Random(seed)
    passages = list(packaged_passages())
    for file in text_files:
        passages += passages_of(file.read_text(encoding="utf-8"))

    def encode(text: str) -> tuple[int, ...]:
        return tokenizer.encode(text, add_special_tokens=False)

    sources: dict[str, Iterator[Prompt]] = {
        "free": itertools.repeat(Prompt(frame.opening(), answering=False)),
        "opening": (Prompt(frame.opening(encode(rng.choice(OPENINGS))), answering=False) for _ in itertools.count()),
        "topic": _questions(frame, encode, lambda: topic_questions(rng)),
        "passage": _questions(frame, encode, lambda: passage_questions(passages, rng)),
    }
    kinds = rng.choices(list(SHARES), list(SHARES.values()), k=count)
    return [next(sources[kind]) for kind in kinds]


def write_missing_chats(
    target: LlamaModel,
    frame: ChatFrame,
    prompts: Sequence[Prompt],
    settings: ChatSettings,
    folder: Path,
    report: Callable[[int, int], None],
) -> list[Path]:
    """Lets the target write whatever of the chats is not in `folder` yet. Reports rows written, and of how many."""
    folder.mkdir(parents=True, exist_ok=True)
    longest = settings.length // 2
    usable = [prompt for prompt in prompts if len(prompt.token_ids) <= longest]
    files = []
    for index, wave in enumerate(in_waves(usable, settings.batch)):
        files.append(folder / f"chats_{index:03}.npz")
        if not files[-1].exists():
            generator = torch.Generator(target.embedding.device).manual_seed(settings.seed * 1_000_003 + index)
            chats = write_chats(target, frame, wave, WritingSettings(length=settings.length), generator)
            save_chats(chats, files[-1])
        report(min((index + 1) * settings.batch, len(usable)), len(usable))
    return files


def load_apart(files: Sequence[Path], questions: Sequence[Sequence[int]]) -> tuple[Chats, int]:
    """The chats without those that share text with an evaluation prompt, and how many were left out."""
    chats = load_chats(files)
    shared = contaminated(chats.token_ids, questions)
    if bool(shared.all()):
        raise ValueError("every chat shares text with an evaluation prompt; leave out prompts of a word or two")
    apart = keep_rows(chats, ~shared)
    require_apart(apart.token_ids, questions)
    return apart, int(shared.sum())


def _questions(
    frame: ChatFrame, encode: Callable[[str], tuple[int, ...]], texts: Callable[[], Iterator[str]]
) -> Iterator[Prompt]:
    """Without end: all texts, then all again in another order."""
    while True:
        for text in texts():
            yield Prompt(frame.question(encode(text)), answering=True)
