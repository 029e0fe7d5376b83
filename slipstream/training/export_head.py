"""Writes an EAGLE-3 head as other servers load it, however it is stored. Knows formats; nothing of training."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from slipstream.config import default_model_dir
from slipstream.models.eagle3_checkpoint import FC, HEAD, load_eagle3, load_projection, save_eagle3, weight_slots
from slipstream.models.loader import open_checkpoint
from slipstream.training.material import REPORT_FILE

CPU = torch.device("cpu")


@torch.no_grad()
def export_head(head: Path, out: Path, target: Path | None = None) -> None:
    """All matrices in bf16, and the rows of the logits, which a small head borrows from its target."""
    model, target_ids = load_eagle3(head, torch.bfloat16, CPU, open_checkpoint(target or _target_of(head)))
    parameters = dict(model.named_parameters())
    weights = {
        name: parameters[slot.parameter][slot.start : slot.start + slot.shape[0]]
        for name, slot in weight_slots(model.config).items()
    }
    projection = load_projection(head, torch.bfloat16, CPU)
    if projection.fc is not None:
        weights[FC] = projection.fc.weight
    save_eagle3(out, model.config, {**weights, HEAD: model.head}, target_ids)


def _target_of(head: Path) -> Path:
    """By the record beside a head that was trained here."""
    record = head / REPORT_FILE
    if not record.is_file():
        raise ValueError(f"{head}: has no {REPORT_FILE} that names its target; give the target's folder (--target)")
    return default_model_dir() / str(json.loads(record.read_text())["target"])
