"""From a target's folder to a stored parallel draft, in slices. Knows files and order; not how each part works."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch
from torch import nn

from slipstream.models.config import ModelConfig
from slipstream.models.draft_checkpoint import draft_tokens, save_draft
from slipstream.models.llama import LlamaModel
from slipstream.models.loader import load_model, open_checkpoint
from slipstream.models.pard import pard_entries
from slipstream.training import slices
from slipstream.training.acceptance import Acceptance
from slipstream.training.draft_model import draft_from_target, spread_layers
from slipstream.training.draft_vocabulary import check_size
from slipstream.training.material import REPORT_FILE, Material, Places, Slice, prepare
from slipstream.training.pard import PardTraining
from slipstream.training.pard_agreement import parallel_acceptance
from slipstream.training.preflight import check_first
from slipstream.training.settings import ChatSettings, PardSettings
from slipstream.training.storing import storing


def train_pard(
    places: Places, chat: ChatSettings, settings: PardSettings, device: torch.device, now: Slice, draft: Path | None
) -> Acceptance | None:
    """Does what is left, for at most `now.seconds`. The stored draft's acceptance when done, None if there is more.

    It begins as the stored draft in folder `draft`, or else as some of the target's layers.
    """
    deadline = time.monotonic() + now.seconds
    target = check_first(places, chat, settings)
    _check(target, settings, draft)
    tokens = None if draft is None else _tokens_of(draft)
    material = prepare(places, chat, settings.draft_vocab_size, device, now, tokens)
    model = _begin(places, settings, material, draft)
    training = PardTraining(material.target, model, material.tokens, material.chats, settings)
    slices.resume(training, places.run / "state")
    now.say(f"before this slice: step {training.step}, {training.acceptance(material.held_out)}")
    ending = slices.Ending(partial(slices.save, training, places.run / "state"), now.finish)
    left, every = deadline - time.monotonic(), now.measure_every
    done = slices.run(training, left, material.held_out, now.progress, every, ending)
    ending.keep()
    if not done:
        return None
    record = {"chat": asdict(chat), "pard": asdict(settings), "text": material.facts, "draft": draft and draft.name}
    return _finish(places, training, material, record)


def _check(target: ModelConfig, settings: PardSettings, draft: Path | None) -> None:
    if settings.mask_token >= target.vocab_size:
        raise ValueError(f"mask_token is {settings.mask_token}; it must be below {target.vocab_size}")
    if draft is None:
        check_size(settings.draft_vocab_size, target.vocab_size)
        spread_layers(target.num_layers, settings.num_layers)


def _tokens_of(draft: Path) -> torch.Tensor:
    tokens = draft_tokens(draft)
    if tokens is None:
        raise ValueError(f"{draft}: names no vocabulary (d2t); give a folder that `slipstream train draft-lm` made")
    return tokens


def _begin(places: Places, settings: PardSettings, material: Material, draft: Path | None) -> LlamaModel:
    """The draft before training. It shares the target's embedding."""
    target = material.target
    if draft is None:
        layers = spread_layers(target.config.num_layers, settings.num_layers)
        return draft_from_target(target, layers, material.tokens)
    model = load_model(draft, target.embedding.dtype, target.embedding.device, target=places.target).train()
    model.embedding = nn.Parameter(target.embedding.detach(), requires_grad=False)
    return model


def _finish(places: Places, training: PardTraining, material: Material, record: Mapping[str, object]) -> Acceptance:
    """Stores the draft and measures it as it will be loaded, in both its uses."""
    settings, tokens = training.settings, material.tokens
    config = open_checkpoint(places.target).config()
    stored_config = config | {"num_hidden_layers": training.draft.config.num_layers} | pard_entries(settings.mask_token)
    with storing(places.out):
        save_draft(places.out, stored_config, training.master.weights, tokens, places.target.name)
    stored = load_model(places.out, torch.bfloat16, training.draft.embedding.device, target=places.target)
    held_out, count = material.held_out, settings.num_draft_tokens
    parallel = parallel_acceptance(stored, tokens, settings.mask_token, held_out, count)
    one_by_one = held_out.acceptance(stored, tokens, count)
    facts = {
        "target": places.target.name,
        "steps": training.step,
        "acceptance_length": parallel.length,
        "acceptance_per_position": parallel.per_position,
        "draft_model_acceptance_length": one_by_one.length,
        "draft_model_acceptance_per_position": one_by_one.per_position,
    }
    (places.out / REPORT_FILE).write_text(json.dumps({**record, **facts}, indent=2) + "\n", encoding="utf-8")
    return parallel
