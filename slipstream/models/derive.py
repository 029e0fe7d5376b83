"""Makes cheaper models out of a model, to draft with. Knows checkpoints on disk; builds and runs no model."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import torch

from slipstream.models.checkpoint import INDEX, WEIGHTS, SafetensorsCheckpoint
from slipstream.models.saving import save_weights

Change = Callable[[str, torch.Tensor], torch.Tensor | None]  # name, tensor -> the new tensor, or None to leave it out


def truncate_layers(src: Path, dst: Path, layers: int) -> None:
    """The first `layers` layers of the model in `src`, with its embedding, last norm, head and tokenizer."""
    checkpoint = SafetensorsCheckpoint(src)
    config = checkpoint.config()
    total = int(config.get("num_hidden_layers", 0))
    if not 1 <= layers <= total:
        raise ValueError(f"layers is {layers}; it must be in 1..{total}, the layers of {src}")

    def keep(name: str, tensor: torch.Tensor) -> torch.Tensor | None:
        layer = re.match(r"model\.layers\.(\d+)\.", name)
        return None if layer and int(layer[1]) >= layers else tensor

    _rewrite(checkpoint, dst, keep)
    (dst / "config.json").write_text(json.dumps(config | {"num_hidden_layers": layers}, indent=2) + "\n")


def round_weights(src: Path, dst: Path, bits: int = 4, group: int = 64) -> None:
    """The model in `src` with each layer's matrices rounded to `bits` bits, in groups of `group` inputs.

    Stored at full width: it is as large as the original, but as wrong as a quantised one.
    """
    if not 1 <= bits <= 16:
        raise ValueError(f"bits is {bits}; it must be in 1..16")
    if group < 1:
        raise ValueError(f"group is {group}; it must be >= 1")

    def rounded(name: str, tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dim() != 2 or not name.startswith("model.layers."):
            return tensor
        parts = [_round(part.float(), bits) for part in torch.split(tensor, group, dim=1)]
        return torch.cat(parts, dim=1).to(tensor.dtype)

    _rewrite(SafetensorsCheckpoint(src), dst, rounded)


def _round(
    weight: torch.Tensor,  # [rows, group]: one group of every row
    bits: int,
) -> torch.Tensor:
    """Each row on a grid of 2^bits values from its least to its greatest."""
    least, greatest = weight.aminmax(dim=1, keepdim=True)
    step = ((greatest - least) / (2**bits - 1)).clamp(min=torch.finfo(torch.float32).tiny)
    rounded: torch.Tensor = ((weight - least) / step).round() * step + least
    return rounded


def _rewrite(checkpoint: SafetensorsCheckpoint, dst: Path, change: Change) -> None:
    """Copies the folder, passing every tensor through `change`; the weights become one file."""
    if dst.exists() and (not dst.is_dir() or dst.samefile(checkpoint.path)):
        raise ValueError(f"target is {dst}; it must be a folder to make, other than the model's own")
    changed = ((name, change(name, tensor)) for name, _, tensor in checkpoint.tensors())
    weights = {name: tensor.contiguous() for name, tensor in changed if tensor is not None}
    dst.mkdir(parents=True, exist_ok=True)
    for file in checkpoint.path.iterdir():
        if file.is_file() and file.suffix != ".safetensors" and file.name != INDEX:
            shutil.copy(file, dst / file.name)
    save_weights(weights, dst / WEIGHTS)
