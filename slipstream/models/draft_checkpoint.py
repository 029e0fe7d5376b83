"""Draft models stored small: int8 rows, the target's embedding left out. Knows the format; nothing of training.

A folder holds config.json, with an entry `slipstream_draft` that names the target, and model.safetensors, with

    NAME.int8, NAME.scale    each matrix by its Hugging Face name (int8_rows.py)
    NAME                     fp32, what is no matrix: norms and biases
    d2t                      int64 [draft vocab]: draft token i is the target's token i + d2t[i]

Embedding and head are the target's; of its head only the draft's rows are used.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from slipstream.config import default_model_dir
from slipstream.errors import CheckpointError
from slipstream.models.checkpoint import WEIGHTS, Checkpoint, SafetensorsCheckpoint, read_json
from slipstream.models.int8_rows import as_int8_rows, whole
from slipstream.models.saving import save_weights

MARK = "slipstream_draft"
FORMAT = "int8-rows"
OFFSETS = "d2t"
OFFSETS_FILE = "d2t.safetensors"
SHARED = ("model.embed_tokens.weight", "lm_head.weight")  # taken from the target


class DraftCheckpoint:
    """Reads such a folder as if it were whole; `target` is where embedding and head come from."""

    def __init__(self, path: Path, target: Checkpoint) -> None:
        self.path = path
        self._target = target

    def config(self) -> dict[str, Any]:
        return read_json(self.path / "config.json")

    def generation_config(self) -> dict[str, Any]:
        return self._target.generation_config()

    def tensors(self) -> Iterator[tuple[str, Path, torch.Tensor]]:
        yield from (entry for entry in self._target.tensors() if entry[0] in SHARED)
        own = whole(SafetensorsCheckpoint(self.path).tensors())
        yield from (entry for entry in own if entry[0] != OFFSETS)

    def stored(self) -> Iterator[tuple[str, Path, torch.Tensor]]:
        return self.tensors()


def is_draft_folder(path: Path) -> bool:
    return (path / "config.json").is_file() and MARK in read_json(path / "config.json")


def target_folder(path: Path, target: Path | None = None) -> Path:
    """The target of the draft in folder `path`: `target` if given, else the one of its name among fetched models."""
    entries = read_json(path / "config.json")[MARK]
    if not isinstance(entries, dict) or entries.get("format") != FORMAT or not isinstance(entries.get("target"), str):
        raise CheckpointError(f"{path / 'config.json'}: {MARK} must name a target and be of format {FORMAT!r}")
    folder = target or default_model_dir() / entries["target"]
    if not folder.exists():
        raise CheckpointError(
            f"{path}: is a draft of {entries['target']}, which is not at {folder}; "
            "name its place as target model, or run `slipstream model fetch`"
        )
    return folder


def tokenizer_folder(path: Path, target: Path | None = None) -> Path:
    """Where a model's tokenizer is: a stored draft has its target's."""
    return target_folder(path, target) if is_draft_folder(path) else path


def save_draft(
    folder: Path,
    config: Mapping[str, Any],  # entries of config.json
    weights: Mapping[str, torch.Tensor],  # by Hugging Face name, without embedding and head
    tokens: torch.Tensor,  # [draft vocab] ids of the target
    target: str,
) -> None:
    """Writes the folder. What is read back differs by the rounding to 8 bits."""
    tensors = {OFFSETS: tokens.cpu() - torch.arange(len(tokens))}
    for name, weight in weights.items():
        if weight.dim() == 2:
            tensors |= as_int8_rows(name, weight)
        else:
            tensors[name] = weight.cpu().float().contiguous()
    folder.mkdir(parents=True, exist_ok=True)
    save_weights(tensors, folder / WEIGHTS)
    entries = {**config, "draft_vocab_size": len(tokens), MARK: {"format": FORMAT, "target": target}}
    (folder / "config.json").write_text(json.dumps(entries, indent=2) + "\n", encoding="utf-8")


def draft_tokens(path: Path) -> torch.Tensor | None:
    """The target's ids of a reduced vocabulary, [draft vocab]; None if the folder's is not reduced."""
    for file in (path / OFFSETS_FILE, path / WEIGHTS):
        for name, offsets in _tensors_named(file, OFFSETS):
            if offsets.dim() != 1 or offsets.is_floating_point():
                raise CheckpointError(f"{file}: tensor {name} must be whole numbers in one dimension")
            return offsets.long() + torch.arange(len(offsets))
    return None


def _tensors_named(file: Path, wanted: str) -> Iterator[tuple[str, torch.Tensor]]:
    if not file.is_file():
        return
    try:
        with safe_open(file, framework="pt") as tensors:
            if wanted in tensors.keys():  # noqa: SIM118 - safe_open is no mapping
                yield wanted, tensors.get_tensor(wanted)
    except SafetensorError as error:
        raise CheckpointError(f"{file}: is truncated or corrupt ({error}); fetch it again") from error
