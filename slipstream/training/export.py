"""Writes a stored draft as an ordinary Hugging Face folder. Knows both formats; nothing of training."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from slipstream.models.checkpoint import WEIGHTS
from slipstream.models.draft_checkpoint import MARK, OFFSETS, OFFSETS_FILE, draft_tokens, is_draft_folder, target_folder
from slipstream.models.loader import open_checkpoint
from slipstream.models.saving import save_weights
from slipstream.text.tokenizer import FILE_NAMES
from slipstream.training.draft_vocabulary import offsets


def export_draft(draft: Path, out: Path, target: Path | None = None) -> None:
    """Weights in bf16 with the target's whole embedding and head, and d2t beside them.

    Only the tokens that d2t names were trained: who drafts with the whole head lets others through as well.
    """
    if not is_draft_folder(draft):
        raise ValueError(f"{draft}: is no stored draft; its config.json has no {MARK!r}")
    tokens = draft_tokens(draft)
    checkpoint = open_checkpoint(draft, target)
    out.mkdir(parents=True, exist_ok=True)
    weights = {name: tensor.to(torch.bfloat16).contiguous() for name, _, tensor in checkpoint.tensors()}
    save_weights(weights, out / WEIGHTS)
    if tokens is not None:
        save_weights({OFFSETS: offsets(tokens)}, out / OFFSETS_FILE)
    config = {name: value for name, value in checkpoint.config().items() if name != MARK}
    _write_json(out / "config.json", config)
    _write_json(out / "generation_config.json", checkpoint.generation_config())
    for name in FILE_NAMES:
        if (file := target_folder(draft, target) / name).is_file():
            (out / name).write_bytes(file.read_bytes())


def _write_json(file: Path, entries: dict[str, object]) -> None:
    file.write_text(json.dumps(entries, indent=2) + "\n", encoding="utf-8")
