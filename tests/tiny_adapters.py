"""Makes random adapters of tiny models, and models that have one merged into their weights, for every test."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from slipstream.models.adapter import Adapter, linear_shapes, save_adapter
from slipstream.models.config import ModelConfig
from slipstream.models.loader import load_config, open_checkpoint


def make_adapter(base: Path, path: Path, *, rank: int = 4, seed: int = 0, strength: float = 1.0) -> Path:
    """Writes a PEFT folder that changes every linear layer of the checkpoint `base`, and returns it."""
    save_adapter(path, random_adapter(load_config(open_checkpoint(base)), rank, seed, strength), base.name)
    return path


def random_adapter(config: ModelConfig, rank: int = 4, seed: int = 0, strength: float = 1.0) -> Adapter:
    generator = torch.Generator().manual_seed(seed)
    matrices = {}
    for name, (rows, columns) in linear_shapes(config).items():
        down = torch.randn(rank, columns, generator=generator) / columns**0.5
        matrices[name] = down, strength * torch.randn(rows, rank, generator=generator) / rank
    return Adapter(rank, 2.0 * rank, matrices)


def only(adapter: Adapter, *modules: str) -> Adapter:
    """The adapter of some modules alone, as `q_proj`."""
    kept = {name: pair for name, pair in adapter.matrices.items() if name.rpartition(".")[2] in modules}
    return replace(adapter, matrices=kept)


def merge(base: Path, adapter: Adapter, path: Path) -> Path:
    """The checkpoint `base` with the adapter in its weights: what the adapter is to come to."""
    weights = load_file(base / "model.safetensors")
    for name, (down, up) in adapter.matrices.items():
        weights[f"{name}.weight"] = weights[f"{name}.weight"] + adapter.scale * up @ down
    path.mkdir(parents=True, exist_ok=True)
    for file in base.glob("*.json"):
        (path / file.name).write_bytes(file.read_bytes())
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    return path
