"""From a draft and some text to an adapter in PEFT's files, in slices. Knows files and order; not how parts work."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch

from slipstream.models.adapter import load_adapter, save_adapter
from slipstream.models.draft_checkpoint import draft_tokens
from slipstream.models.llama import LlamaModel
from slipstream.models.loader import load_model
from slipstream.text.tokenizer import Tokenizer
from slipstream.training import slices
from slipstream.training.acceptance import Acceptance
from slipstream.training.chat_frame import ChatFrame
from slipstream.training.claim import claim_folder, model_digest
from slipstream.training.corpus import load_apart, write_missing_chats
from slipstream.training.generate import Chats
from slipstream.training.held_out import HeldOut
from slipstream.training.lora import LoraTraining
from slipstream.training.lora_model import attach
from slipstream.training.lora_text import KindOfText, digest_of, first_answers, prompts_in
from slipstream.training.material import REPORT_FILE, Slice
from slipstream.training.preflight import check_first
from slipstream.training.settings import ChatSettings, LoraSettings
from slipstream.training.storing import storing

ANSWER_TOKENS = 128  # of each held-out answer


@dataclass(frozen=True, kw_only=True, slots=True)
class LoraPlaces:
    """Files and folders of one training."""

    target: Path
    draft: Path
    run: Path  # chats and state; may be deleted afterwards
    out: Path  # the finished adapter
    texts: tuple[Path, ...]  # of the kind that it is for


@dataclass(frozen=True, slots=True)
class Gain:
    """Acceptance of held-out text of the kind."""

    base: Acceptance
    adapted: Acceptance

    def __str__(self) -> str:
        return f"base draft: {self.base}; with the adapter: {self.adapted}"


@dataclass(frozen=True, slots=True)
class _Material:
    target: LlamaModel
    tokens: torch.Tensor  # [draft vocab]
    chats: Chats
    held_out: HeldOut


def train_lora(
    places: LoraPlaces, chat: ChatSettings, settings: LoraSettings, device: torch.device, now: Slice
) -> Gain | None:
    """Does what is left, for at most `now.seconds`. What the stored adapter gains when done, None if there is more."""
    deadline = time.monotonic() + now.seconds
    check_first(places, chat, settings)
    material = _prepare(places, chat, settings, device, now)
    draft = _draft(places, device)
    if draft.config.vocab_size != material.target.config.vocab_size:
        raise ValueError(
            f"{places.draft}: has {draft.config.vocab_size} token ids, and the target "
            f"{material.target.config.vocab_size}; a draft needs the target's vocabulary"
        )
    training = LoraTraining(material.target, draft, material.tokens, material.chats, settings)
    base = training.acceptance(material.held_out)  # an adapter that has learned nothing changes nothing
    slices.resume(training, places.run / "state")
    now.say(f"before this slice: step {training.step}; base draft: {base}")
    ending = slices.Ending(partial(slices.save, training, places.run / "state"), now.finish)
    left, every = deadline - time.monotonic(), now.measure_every
    done = slices.run(training, left, material.held_out, now.progress, every, ending)
    ending.keep()
    if not done:
        return None
    with storing(places.out):
        save_adapter(places.out, training.adapter, places.draft.name)
    gain = Gain(base, _stored_acceptance(places, settings, material))
    _record(places, chat, settings, gain)
    return gain


def _prepare(
    places: LoraPlaces, chat: ChatSettings, settings: LoraSettings, device: torch.device, now: Slice
) -> _Material:
    """Lets the target write what text is missing."""
    target = load_model(places.target, torch.bfloat16, device)
    tokenizer = Tokenizer.from_folder(places.target)
    frame = ChatFrame.of(tokenizer)
    prompts = prompts_in(places.texts, tokenizer, frame, chat.length // 2)
    kind = KindOfText.of(prompts, settings.num_held_out, settings.seed)
    rows = kind.rows(max(1, chat.chat_tokens // chat.length))
    claim_folder(places.run, {"target": model_digest(target), "prompts": digest_of(rows), **asdict(chat)})
    files = write_missing_chats(
        target, frame, rows, chat, places.run, lambda done, total: now.say(f"chats: {done} of {total} rows")
    )
    chats = first_answers(load_apart(files, ())[0])
    held_out = HeldOut.answers_to(target, frame, kind.held_out, ANSWER_TOKENS)
    now.say(
        f"text: {len(kind.training)} prompts, {int(chats.answers.sum())} tokens to learn, {len(kind.held_out)} held out"
    )
    return _Material(target, _draft_tokens(places, target), chats, held_out)


def _draft(places: LoraPlaces, device: torch.device) -> LlamaModel:
    return load_model(places.draft, torch.bfloat16, device, target=places.target)


def _draft_tokens(places: LoraPlaces, target: LlamaModel) -> torch.Tensor:
    tokens = draft_tokens(places.draft)
    return torch.arange(target.config.vocab_size) if tokens is None else tokens


def _stored_acceptance(places: LoraPlaces, settings: LoraSettings, material: _Material) -> Acceptance:
    """Of the files, as a drafter would read them."""
    draft = _draft(places, material.target.embedding.device)
    attach(draft, load_adapter(places.out, draft.config, settings.rank))
    return material.held_out.acceptance(draft, material.tokens, settings.num_draft_tokens)


def _record(places: LoraPlaces, chat: ChatSettings, settings: LoraSettings, gain: Gain) -> None:
    record = {
        "target": places.target.name,
        "draft": places.draft.name,
        "texts": [file.name for file in places.texts],
        "chat": asdict(chat),
        "lora": asdict(settings),
        "base_acceptance_length": gain.base.length,
        "base_acceptance_per_position": gain.base.per_position,
        "acceptance_length": gain.adapted.length,
        "acceptance_per_position": gain.adapted.per_position,
    }
    (places.out / REPORT_FILE).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
