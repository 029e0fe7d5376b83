"""Everything from a target's folder to a stored draft LM, in slices. Knows files and order; not how each part works."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from functools import partial

import torch

from slipstream.models.draft_checkpoint import save_draft
from slipstream.models.loader import load_model, open_checkpoint
from slipstream.training import slices
from slipstream.training.acceptance import Acceptance
from slipstream.training.draft_lm import DraftTraining
from slipstream.training.draft_model import spread_layers
from slipstream.training.draft_vocabulary import check_size
from slipstream.training.material import REPORT_FILE, Material, Places, Slice, prepare
from slipstream.training.preflight import check_first
from slipstream.training.settings import ChatSettings, DraftSettings
from slipstream.training.storing import storing


def train_draft_lm(
    places: Places, chat: ChatSettings, draft: DraftSettings, device: torch.device, now: Slice
) -> Acceptance | None:
    """Does what is left, for at most `now.seconds`. The stored draft's acceptance when done, None if there is more."""
    deadline = time.monotonic() + now.seconds
    target = check_first(places, chat, draft)
    check_size(draft.draft_vocab_size, target.vocab_size)
    spread_layers(target.num_layers, draft.num_layers)
    material = prepare(places, chat, draft.draft_vocab_size, device, now)
    training = DraftTraining(material.target, material.tokens, material.chats, draft)
    slices.resume(training, places.run / "state")
    now.say(f"before this slice: step {training.step}, {training.acceptance(material.held_out)}")
    ending = slices.Ending(partial(slices.save, training, places.run / "state"), now.finish)
    left, every = deadline - time.monotonic(), now.measure_every
    done = slices.run(training, left, material.held_out, now.progress, every, ending)
    ending.keep()
    if not done:
        return None
    record: dict[str, object] = {"chat": asdict(chat), "draft": asdict(draft), "text": material.facts}
    return _finish(places, training, material, record)


def _finish(places: Places, training: DraftTraining, material: Material, record: dict[str, object]) -> Acceptance:
    """Stores the draft and measures it as it will be loaded."""
    config = open_checkpoint(places.target).config()
    layers = spread_layers(int(config["num_hidden_layers"]), training.settings.num_layers)
    stored_config = config | {"num_hidden_layers": len(layers)}
    with storing(places.out):
        save_draft(places.out, stored_config, training.master.weights, material.tokens, places.target.name)
    stored = load_model(places.out, torch.bfloat16, training.draft.embedding.device, target=places.target)
    acceptance = material.held_out.acceptance(stored, material.tokens, training.settings.num_draft_tokens)
    record |= {
        "target": places.target.name,
        "target_layers": layers,
        "steps": training.step,
        "acceptance_length": acceptance.length,
        "acceptance_per_position": acceptance.per_position,
    }
    (places.out / REPORT_FILE).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return acceptance
