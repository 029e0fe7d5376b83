"""What every training starts from: a target, text that it wrote, and held-out answers. Knows files and order."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from slipstream.models.llama import LlamaModel
from slipstream.models.loader import load_model
from slipstream.text.tokenizer import Tokenizer
from slipstream.training.chat_frame import ChatFrame
from slipstream.training.claim import claim_folder, file_digests, model_digest
from slipstream.training.corpus import beginnings, load_apart, write_missing_chats
from slipstream.training.draft_vocabulary import choose_tokens, coverage
from slipstream.training.generate import Chats
from slipstream.training.held_out import HeldOut, read_prompts, read_utf8
from slipstream.training.settings import ChatSettings
from slipstream.training.slices import Progress

REPORT_FILE = "training.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Places:
    """Files and folders of one training."""

    target: Path
    run: Path  # chats and state; may be deleted afterwards
    out: Path  # the finished drafter
    prompts: Path  # evaluation prompts
    texts: tuple[Path, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Slice:
    """How long to go on now, and how to tell about it."""

    seconds: float
    measure_every: float  # seconds between held-out measurements
    say: Callable[[str], None]
    progress: Callable[[Progress], None]
    finish: bool = False  # in this slice, with fewer steps if need be


@dataclass(frozen=True, slots=True)
class Material:
    target: LlamaModel
    chats: Chats
    tokens: torch.Tensor  # [draft vocab] ids that may be drafted
    held_out: HeldOut
    facts: dict[str, object]  # about the text, for the record


def prepare(
    places: Places,
    chat: ChatSettings,
    draft_vocab_size: int,
    device: torch.device,
    now: Slice,
    tokens: torch.Tensor | None = None,  # [draft vocab] of a draft that is there already; None: the most frequent ones
) -> Material:
    """Writes what text is missing, and leaves out what evaluation prompts are in."""
    target = load_model(places.target, torch.bfloat16, device)
    tokenizer = Tokenizer.from_folder(places.target)
    frame = ChatFrame.of(tokenizer)
    questions = [tokenizer.encode(text, add_special_tokens=False) for text in read_prompts(places.prompts)]
    texts = file_digests(places.texts)
    claim_folder(places.run, {"target": model_digest(target), "texts": texts, **asdict(chat)})
    files = _write(places, chat, target, frame, tokenizer, now)
    if device.type == "cuda":
        torch.cuda.empty_cache()  # the keys and values of all rows: other trainings may share the GPU
    chats, num_left_out = load_apart(files, questions)
    written = chats.token_ids[chats.answers]
    if not len(written):
        raise ValueError(f"no row holds a token of an answer: length is {chat.length}; write longer rows")
    if tokens is None:
        tokens = choose_tokens(written, draft_vocab_size, target.config.vocab_size, (frame.end_token,))
    held_out = HeldOut.written_by(target, frame, questions, answer_tokens=128)
    facts: dict[str, object] = {
        "rows": len(chats.token_ids),
        "rows_left_out": num_left_out,
        "tokens": chats.token_ids.numel(),
        "answer_tokens": len(written),
        "coverage": coverage(written, tokens),
        "held_out_coverage": coverage(held_out.answer_tokens(), tokens),
    }
    now.say(f"text: {json.dumps(facts)}")
    return Material(target, chats, tokens, held_out, facts)


def _write(
    places: Places, chat: ChatSettings, target: LlamaModel, frame: ChatFrame, tokenizer: Tokenizer, now: Slice
) -> list[Path]:
    prompts = beginnings(frame, tokenizer, max(1, chat.chat_tokens // chat.length), chat.seed, places.texts)
    start = time.monotonic()

    def report(done: int, total: int) -> None:
        now.say(f"chats: {done} of {total} rows, {time.monotonic() - start:.0f} s")

    return write_missing_chats(target, frame, prompts, chat, places.run, report)


def text_files(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Raises ValueError naming a file that is not there, or is no text."""
    for path in paths:
        if not path.is_file():
            raise ValueError(f"{path}: no such text file")
        read_utf8(path)
    return tuple(paths)
