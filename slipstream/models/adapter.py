"""A low-rank adapter of a Llama and its PEFT files. Knows names, shapes and the format; not who runs it.

A folder holds adapter_config.json and adapter_model.safetensors with, for each adapted matrix,

    base_model.model.NAME.lora_A.weight     [r, in]
    base_model.model.NAME.lora_B.weight     [out, r]        NAME as in model.layers.0.self_attn.q_proj

and the adapted product is W x + scale * B (A x), scale = lora_alpha / r, or lora_alpha / sqrt(r) with use_rslora.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from slipstream.errors import CheckpointError
from slipstream.models.checkpoint import read_json
from slipstream.models.config import ModelConfig
from slipstream.models.saving import save_weights
from slipstream.models.weight_names import layer_slots

CONFIG: Final = "adapter_config.json"
WEIGHTS: Final = "adapter_model.safetensors"
_PREFIX: Final = "base_model.model."
_DOWN, _UP = ".lora_A.weight", ".lora_B.weight"
# Entries that say how an adapter was made, or what is asked elsewhere. Of all others only the neutral value is known.
_NOT_ASKED: Final = frozenset(
    {
        "auto_mapping",
        "base_model_name_or_path",
        "eva_config",
        "ensure_weight_tying",
        "exclude_modules",
        "inference_mode",
        "init_lora_weights",
        "layers_pattern",
        "loftq_config",
        "lora_alpha",
        "lora_dropout",
        "megatron_core",
        "peft_type",
        "peft_version",
        "qalora_group_size",
        "r",
        "revision",
        "runtime_config",
        "target_modules",
        "task_type",
        "use_rslora",
    }
)
_NEUTRAL: Final[tuple[object, ...]] = (None, False, [], {}, "", "none")
_BASE_UNCHANGED: Final = (None, True, False, "gaussian", "orthogonal", "eva")  # kinds of init_lora_weights


@dataclass(frozen=True, eq=False, slots=True)
class Adapter:
    rank: int
    alpha: float
    matrices: Mapping[str, tuple[torch.Tensor, torch.Tensor]]  # by NAME: A [rank, in], B [out, rank]
    rank_stabilised: bool = False

    @property
    def scale(self) -> float:
        return self.alpha / (math.sqrt(self.rank) if self.rank_stabilised else self.rank)


def linear_shapes(config: ModelConfig) -> dict[str, tuple[int, int]]:
    """Rows and columns of every matrix that may be adapted, by NAME."""
    slots = layer_slots(config, config)
    return {
        f"model.layers.{layer}.{name.removesuffix('.weight')}": (slot.shape[0], slot.shape[1])
        for layer in range(config.num_layers)
        for name, slot in slots.items()
        if len(slot.shape) == 2
    }


def load_adapter(folder: Path, config: ModelConfig, max_rank: int) -> Adapter:
    """The adapter of a model of this configuration. CheckpointError names the file and what in it does not fit."""
    file = folder / CONFIG
    entries = read_json(file)
    _require_known(file, entries)
    rank, alpha = entries.get("r"), entries.get("lora_alpha")
    if not isinstance(rank, int) or not 1 <= rank <= max_rank:
        raise CheckpointError(f"{file}: r is {rank!r}; it must be in 1..{max_rank}, the most that is kept room for")
    if not isinstance(alpha, int | float) or not math.isfinite(alpha):
        raise CheckpointError(f"{file}: lora_alpha is {alpha!r}; it must be a number")
    shapes = linear_shapes(config)
    matrices = _matrices(folder / WEIGHTS, shapes, rank)
    for name in _targets(file, entries["target_modules"], shapes):
        if name not in matrices:
            raise CheckpointError(f"{folder / WEIGHTS}: has nothing for {name}, which target_modules names")
    return Adapter(rank, float(alpha), matrices, bool(entries.get("use_rslora")))


def save_adapter(folder: Path, adapter: Adapter, base_model: str) -> None:
    """The folder that `load_adapter` reads, and PEFT too."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for name, (down, up) in adapter.matrices.items():
        tensors[f"{_PREFIX}{name}{_DOWN}"] = down.detach().float().cpu().contiguous()
        tensors[f"{_PREFIX}{name}{_UP}"] = up.detach().float().cpu().contiguous()
    save_weights(tensors, folder / WEIGHTS)
    entries = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base_model,
        "r": adapter.rank,
        "lora_alpha": adapter.alpha,
        "use_rslora": adapter.rank_stabilised,
        "target_modules": sorted({name.rpartition(".")[2] for name in adapter.matrices}),
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }
    (folder / CONFIG).write_text(json.dumps(entries, indent=2) + "\n", encoding="utf-8")


def _require_known(file: Path, entries: Mapping[str, Any]) -> None:
    if entries.get("peft_type") != "LORA":
        raise CheckpointError(f"{file}: peft_type is {entries.get('peft_type')!r}; only 'LORA' is known here")
    if (made := entries.get("init_lora_weights")) not in _BASE_UNCHANGED:
        raise CheckpointError(f"{file}: init_lora_weights is {made!r}, which changes the base model; convert it first")
    for name, value in entries.items():
        if name not in _NOT_ASKED and value not in _NEUTRAL:
            raise CheckpointError(
                f"{file}: {name} is {value!r}, which is not known here; leave it out or at its default"
            )
    if not isinstance(entries.get("target_modules"), list | str):
        raise CheckpointError(f"{file}: target_modules is {entries.get('target_modules')!r}; it must name modules")


def _targets(file: Path, modules: list[Any] | str, shapes: Mapping[str, object]) -> Sequence[str]:
    """All matrices that a list names; a pattern is not followed, for what it meant is in the weights."""
    if isinstance(modules, str):
        return ()
    targets = []
    for module in modules:
        found = [name for name in shapes if name == module or name.endswith(f".{module}")]
        if not found:
            raise CheckpointError(f"{file}: target_modules names {module!r}, which is no linear layer of this model")
        targets += found
    return targets


def _matrices(
    file: Path, shapes: Mapping[str, tuple[int, int]], rank: int
) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    tensors = _read(file)
    matrices = {}
    for name in sorted({_adapted_name(file, key) for key in tensors}):
        if name not in shapes:
            raise CheckpointError(f"{file}: adapts {name}, which is no linear layer of this model")
        rows, columns = shapes[name]
        down = _tensor(file, tensors, name + _DOWN, (rank, columns))
        matrices[name] = down, _tensor(file, tensors, name + _UP, (rows, rank))
    if not matrices:
        raise CheckpointError(f"{file}: adapts nothing")
    return matrices


def _read(file: Path) -> dict[str, torch.Tensor]:
    try:
        return dict(load_file(file))
    except FileNotFoundError as error:
        raise CheckpointError(f"{file}: is missing") from error
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{file}: is truncated or corrupt ({error})") from error


def _adapted_name(file: Path, key: str) -> str:
    for end in (_DOWN, _UP):
        if key.startswith(_PREFIX) and key.endswith(end):
            return key.removeprefix(_PREFIX).removesuffix(end)
    raise CheckpointError(f"{file}: tensor {key} is no part of a LoRA adapter")


def _tensor(file: Path, tensors: Mapping[str, torch.Tensor], name: str, shape: tuple[int, int]) -> torch.Tensor:
    tensor = tensors.get(_PREFIX + name)
    if tensor is None:
        raise CheckpointError(f"{file}: tensor {_PREFIX}{name} is missing")
    if tuple(tensor.shape) != shape:
        raise CheckpointError(f"{file}: tensor {_PREFIX}{name} has shape {list(tensor.shape)}, not {list(shape)}")
    if not bool(tensor.isfinite().all()):
        raise CheckpointError(f"{file}: tensor {_PREFIX}{name} holds values that are no numbers")
    return tensor
