"""Everything from a target's folder to an EAGLE-3 head, in slices. Knows files and order; not how each part works."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import torch

from slipstream.models.config import ModelConfig
from slipstream.models.eagle3_checkpoint import HEAD, load_eagle3, load_eagle3_config, load_projection, save_eagle3
from slipstream.models.eagle3_config import default_layer_ids
from slipstream.models.loader import open_checkpoint
from slipstream.training import slices
from slipstream.training.acceptance import Acceptance
from slipstream.training.draft_model import target_head
from slipstream.training.draft_vocabulary import check_size, choose_tokens
from slipstream.training.eagle3 import Eagle3Training
from slipstream.training.material import REPORT_FILE, Material, Places, Slice, prepare
from slipstream.training.preflight import check_first
from slipstream.training.settings import ChatSettings, Eagle3Settings
from slipstream.training.storing import storing

FEWEST_LAYERS = 3  # of a target: the lowest state that is tapped enters its third


def train_eagle3(
    places: Places,
    chat: ChatSettings,
    settings: Eagle3Settings,
    device: torch.device,
    now: Slice,
    head: Path | None = None,
) -> Acceptance | None:
    """Does what is left, for at most `now.seconds`. The stored head's acceptance when done, None if there is more.

    It begins as the stored head in folder `head`, or else as the target's last layer.
    """
    deadline = time.monotonic() + now.seconds
    target = check_first(places, chat, settings)
    check_size(max(settings.draft_vocab_size, settings.stored_vocab_size), target.vocab_size)
    if target.num_layers < FEWEST_LAYERS:
        raise ValueError(f"{places.target}: has {target.num_layers} layers; features need {FEWEST_LAYERS} or more")
    if head is not None:
        _check_head(head, target)
    material = prepare(places, chat, settings.draft_vocab_size, device, now)
    training = Eagle3Training(material.target, material.tokens, material.chats, settings)
    if head is not None:
        _begin(training, head, places)
    slices.resume(training, places.run / "state")
    now.say(f"before this slice: step {training.step}, {training.acceptance(material.held_out)}")
    ending = slices.Ending(partial(slices.save, training, places.run / "state"), now.finish)
    left, every = deadline - time.monotonic(), now.measure_every
    done = slices.run(training, left, material.held_out, now.progress, every, ending)
    ending.keep()
    if not done:
        return None
    record = {"chat": asdict(chat), "eagle3": asdict(settings), "text": material.facts, "head": head and head.name}
    return _finish(places, training, material, record)


def _finish(places: Places, training: Eagle3Training, material: Material, record: Mapping[str, object]) -> Acceptance:
    """Stores the head and measures it as it will be loaded."""
    weights, tokens = dict(training.master.weights), _stored_tokens(training, material)
    small = training.settings.shared_head
    if not small:
        weights[HEAD] = target_head(material.target)[tokens.to(material.target.embedding.device)]
    config = replace(training.head.config, draft_vocab_size=len(tokens))
    with storing(places.out):
        save_eagle3(places.out, config, weights, tokens, None if small else torch.bfloat16)
    _load_into(training, places)
    acceptance = training.acceptance(material.held_out)
    facts = {
        "target": places.target.name,
        "steps": training.step,
        "acceptance_length": acceptance.length,
        "acceptance_per_position": acceptance.per_position,
    }
    (places.out / REPORT_FILE).write_text(json.dumps({**record, **facts}, indent=2) + "\n", encoding="utf-8")
    return acceptance


def _check_head(head: Path, target: ModelConfig) -> None:
    config, usual = load_eagle3_config(head), default_layer_ids(target.num_layers)
    is_usual = config.use_aux_hidden_state and not config.norm_before_residual
    shape, trained = (
        (config.hidden_size, config.layer.intermediate_size),
        (target.hidden_size, target.intermediate_size),
    )
    if not is_usual or config.tapped_layers(target.num_layers) != usual or shape != trained:
        raise ValueError(
            f"{head}: is not as heads are trained here, of the target's shape, with states of layers {usual}"
        )


def _begin(training: Eagle3Training, head: Path, places: Places) -> None:
    """With the layer, the last norm and the features of a stored head."""
    own, embedding = training.head, training.head.model.embedding
    stored, _ = load_eagle3(head, embedding.dtype, embedding.device, open_checkpoint(places.target))
    for part in ("layer", "norm"):
        getattr(own.model, part).load_state_dict(getattr(stored, part).state_dict())
    own.projection.load_state_dict(load_projection(head, embedding.dtype, embedding.device).state_dict())
    training.master.load(own.master_weights().weights)


def _load_into(training: Eagle3Training, places: Places) -> None:
    embedding = training.head.model.embedding
    target = open_checkpoint(places.target)
    training.head.model, tokens = load_eagle3(places.out, embedding.dtype, embedding.device, target)
    assert tokens is not None
    training.tokens = tokens
    training.head.projection = load_projection(places.out, embedding.dtype, embedding.device)


def _stored_tokens(training: Eagle3Training, material: Material) -> torch.Tensor:
    """Its rows of the logits are the target's, so a head drafts tokens too that its training left out to save time."""
    size = training.settings.stored_vocab_size
    if not size:
        return material.tokens
    written = material.chats.token_ids[material.chats.answers]
    return choose_tokens(written, size, material.target.config.vocab_size, material.tokens.tolist())
