"""Everything from a target's folder to a stored draft LM, in slices. Knows files and order; not how each part works."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from slipstream.models.draft_checkpoint import save_draft
from slipstream.models.llama import LlamaModel
from slipstream.models.loader import load_model, open_checkpoint
from slipstream.text.tokenizer import Tokenizer
from slipstream.training.acceptance import Acceptance
from slipstream.training.chat_frame import ChatFrame
from slipstream.training.corpus import beginnings, load_apart, write_missing_chats
from slipstream.training.draft_lm import DraftTraining, Progress
from slipstream.training.draft_model import spread_layers
from slipstream.training.draft_vocabulary import choose_tokens, coverage
from slipstream.training.held_out import HeldOut, read_prompts
from slipstream.training.settings import ChatSettings, DraftSettings

REPORT_FILE = "training.json"


@dataclass(frozen=True, kw_only=True, slots=True)
class Places:
    """Files and folders of one training."""

    target: Path
    run: Path  # chats and state; may be deleted afterwards
    out: Path  # the finished draft
    prompts: Path  # evaluation prompts
    texts: tuple[Path, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Slice:
    """How long to go on now, and how to tell about it."""

    seconds: float
    measure_every: float  # seconds between held-out measurements
    say: Callable[[str], None]
    progress: Callable[[Progress], None]


def train_draft_lm(
    places: Places, chat: ChatSettings, draft: DraftSettings, device: torch.device, now: Slice
) -> Acceptance | None:
    """Does what is left, for at most `now.seconds`. The stored draft's acceptance when done, None if there is more."""
    deadline = time.monotonic() + now.seconds
    target = load_model(places.target, torch.bfloat16, device)
    tokenizer = Tokenizer.from_folder(places.target)
    frame = ChatFrame.of(tokenizer)
    questions = [tokenizer.encode(text, add_special_tokens=False) for text in read_prompts(places.prompts)]
    files = _write(places, chat, target, frame, tokenizer, now)
    chats, num_left_out = load_apart(files, questions)
    written = chats.token_ids[chats.answers]
    tokens = choose_tokens(written, draft.draft_vocab_size, target.config.vocab_size, (frame.end_token,))
    held_out = HeldOut.written_by(target, frame, questions, answer_tokens=128)
    facts = {
        "rows": len(chats.token_ids),
        "rows_left_out": num_left_out,
        "tokens": chats.token_ids.numel(),
        "answer_tokens": len(written),
        "coverage": coverage(written, tokens),
        "held_out_coverage": coverage(held_out.answer_tokens(), tokens),
    }
    now.say(f"text: {json.dumps(facts)}")
    training = DraftTraining(target, tokens, chats, draft)
    training.resume(places.run / "state")
    now.say(f"before this slice: step {training.step}, {training.acceptance(held_out)}")
    done = training.run(deadline - time.monotonic(), held_out, now.progress, now.measure_every)
    training.save(places.run / "state")
    if not done:
        return None
    return _finish(places, training, tokens, held_out, {"chat": asdict(chat), "draft": asdict(draft), "text": facts})


def _write(
    places: Places, chat: ChatSettings, target: LlamaModel, frame: ChatFrame, tokenizer: Tokenizer, now: Slice
) -> list[Path]:
    prompts = beginnings(frame, tokenizer, max(1, chat.chat_tokens // chat.length), chat.seed, places.texts)
    start = time.monotonic()

    def report(done: int, total: int) -> None:
        now.say(f"chats: {done} of {total} rows, {time.monotonic() - start:.0f} s")

    return write_missing_chats(target, frame, prompts, chat, places.run, report)


def _finish(
    places: Places, training: DraftTraining, tokens: torch.Tensor, held_out: HeldOut, record: dict[str, object]
) -> Acceptance:
    """Stores the draft and measures it as it will be loaded."""
    config = open_checkpoint(places.target).config()
    layers = spread_layers(int(config["num_hidden_layers"]), training.settings.num_layers)
    stored_config = config | {"num_hidden_layers": len(layers)}
    save_draft(places.out, stored_config, training.master.weights, tokens, places.target.name)
    stored = load_model(places.out, torch.bfloat16, training.draft.embedding.device, target=places.target)
    acceptance = held_out.acceptance(stored, tokens, training.settings.num_draft_tokens)
    record |= {
        "target": places.target.name,
        "target_layers": layers,
        "acceptance_length": acceptance.length,
        "acceptance_per_position": acceptance.per_position,
    }
    (places.out / REPORT_FILE).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return acceptance


def text_files(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Raises ValueError naming a file that is not there."""
    for path in paths:
        if not path.is_file():
            raise ValueError(f"{path}: no such text file")
    return tuple(paths)
