"""A training's state on disk, small enough to move between machines. Knows tensors and files; nothing of training."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from slipstream.errors import CheckpointError
from slipstream.models.saving import save_weights
from slipstream.training.storing import storing

SPEED_ONLY = ("compiled", "keep_states", "loss_chunk")  # settings that change nothing else: they may differ
FILE_BYTES = 15 << 20  # some ways between machines take files of 16 MiB at most


@dataclass(frozen=True, slots=True)
class TrainingState:
    """Where a training stands. Weights travel as fp16, momenta as bf16: 4 bytes for each trained parameter."""

    step: int
    weights: Mapping[str, torch.Tensor]
    momenta: Mapping[str, torch.Tensor]
    settings: Mapping[str, object]  # a state is only continued under the settings that made it


def save_state(state: TrainingState, folder: Path) -> None:
    """A whole state is on disk at all times, in the folder or, for a moment, where `_former` says."""
    _settle(folder)
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    with storing(folder):
        _write(state, partial)
    if folder.exists():
        folder.rename(_former(folder))
    partial.rename(folder)
    shutil.rmtree(_former(folder), ignore_errors=True)


def _write(state: TrainingState, folder: Path) -> None:
    folder.mkdir(parents=True)
    tensors = {f"weight.{name}": weight.half() for name, weight in state.weights.items()}
    tensors |= {f"momentum.{name}": momentum.bfloat16() for name, momentum in state.momenta.items()}
    for index, part in enumerate(_parts(tensors)):
        tensors = {name: tensor.cpu().contiguous() for name, tensor in part.items()}
        save_weights(tensors, folder / f"{index}.safetensors")
    (folder / "state.json").write_text(json.dumps({"step": state.step, "settings": state.settings}, indent=2))


def load_state(folder: Path, settings: Mapping[str, object]) -> TrainingState | None:
    """The state in `folder`, or None if training has not begun. Raises CheckpointError if its settings are others."""
    header = check_state(folder, settings)
    if header is None:
        return None
    tensors: dict[str, torch.Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        try:
            tensors |= load_file(file)
        except SafetensorError as error:
            raise CheckpointError(f"{file}: {error}; remove {folder} to begin again") from error
    return TrainingState(header["step"], _under("weight.", tensors), _under("momentum.", tensors), header["settings"])


def check_state(folder: Path, settings: Mapping[str, object]) -> dict[str, Any] | None:
    """What the state in `folder` says of itself, None if there is none. Raises CheckpointError as `load_state` does."""
    _settle(folder)
    try:
        header: dict[str, Any] = json.loads((folder / "state.json").read_text())
    except FileNotFoundError:
        return None
    told = {name: value for name, value in settings.items() if name not in SPEED_ONLY}
    if differing := sorted(name for name, value in told.items() if header["settings"].get(name) != value):
        name = differing[0]
        raise CheckpointError(
            f"{folder}: was made with {name} = {header['settings'].get(name)!r}, not {settings[name]!r}; "
            "use the same settings or another --run folder"
        )
    return header


def _former(folder: Path) -> Path:
    return folder.with_name(folder.name + ".former")


def _settle(folder: Path) -> None:
    """Brings the former state back if a crash came before the new one had its name."""
    former = _former(folder)
    if folder.exists():
        shutil.rmtree(former, ignore_errors=True)
    elif former.exists():
        former.rename(folder)


def _under(prefix: str, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _parts(tensors: Mapping[str, torch.Tensor]) -> list[dict[str, torch.Tensor]]:
    parts: list[dict[str, torch.Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        if parts[-1] and size + tensor.nbytes > FILE_BYTES:
            parts.append({})
            size = 0
        parts[-1][name] = tensor
        size += tensor.nbytes
    return parts


def as_settings(settings: object) -> dict[str, object]:
    """A settings dataclass as JSON would give it back."""
    return dict(json.loads(json.dumps(asdict(settings))))  # type: ignore[call-overload]
