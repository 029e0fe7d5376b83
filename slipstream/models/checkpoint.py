"""Reads a Hugging Face folder of safetensors. Knows files and names; not what the tensors are for."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from safetensors import SafetensorError, safe_open

from slipstream.errors import CheckpointError

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"


class StoredTensor(Protocol):
    """A tensor, or one in a file that is read as far as it is indexed."""

    @property
    def shape(self) -> Sequence[int]:
        """Of the whole."""

    def __getitem__(self, index: tuple[slice, ...]) -> torch.Tensor:
        """A part of it."""


class Checkpoint(Protocol):
    """Where a model comes from: this folder format, or a GGUF file."""

    path: Path

    def config(self) -> dict[str, Any]:
        """The entries of config.json."""

    def generation_config(self) -> dict[str, Any]:
        """The entries of generation_config.json, empty if there is none."""

    def tensors(self) -> Iterator[tuple[str, Path, torch.Tensor]]:
        """Every tensor with its Hugging Face name and the file that holds it."""

    def stored(self) -> Iterator[tuple[str, Path, StoredTensor]]:
        """The same, for callers that need only parts of them."""


class SafetensorsCheckpoint:
    """A folder with config.json and model.safetensors, whole or in shards."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def config(self) -> dict[str, Any]:
        return read_json(self.path / "config.json")

    def generation_config(self) -> dict[str, Any]:
        file = self.path / "generation_config.json"
        return read_json(file) if file.exists() else {}

    def tensors(self) -> Iterator[tuple[str, Path, torch.Tensor]]:
        for file in self._files():
            yield from ((name, file, tensor[()]) for name, tensor in _read(file))

    def stored(self) -> Iterator[tuple[str, Path, StoredTensor]]:
        for file in self._files():
            yield from ((name, file, tensor) for name, tensor in _read(file))

    def _files(self) -> list[Path]:
        index = self.path / INDEX
        if (self.path / WEIGHTS).exists() or not index.exists():
            return [self.path / WEIGHTS]
        shards = read_json(index).get("weight_map")
        if not isinstance(shards, dict) or not all(isinstance(name, str) for name in shards.values()):
            raise CheckpointError(f"{index}: has no weight_map of tensor names to file names")
        names = sorted(set(shards.values()))
        if outside := [name for name in names if Path(name).name != name]:
            raise CheckpointError(f"{index}: shard {outside[0]!r} is not a plain file name")
        return [self.path / name for name in names]


def read_json(file: Path) -> dict[str, Any]:
    """A JSON object from a checkpoint's file."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{file}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise CheckpointError(f"{file}: is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{file}: holds a {type(value).__name__} where a JSON object is needed")
    return value


class _FileTensor:
    """One tensor of an open safetensors file."""

    def __init__(self, tensors: Any, name: str) -> None:
        self._tensors, self._name = tensors, name

    @property
    def shape(self) -> Sequence[int]:
        shape: list[int] = self._tensors.get_slice(self._name).get_shape()
        return shape

    def __getitem__(self, index: tuple[slice, ...]) -> torch.Tensor:
        """() is all of it."""
        if not index:
            return cast(torch.Tensor, self._tensors.get_tensor(self._name))
        return cast(torch.Tensor, self._tensors.get_slice(self._name)[index])


def _read(file: Path) -> Iterator[tuple[str, _FileTensor]]:
    if not file.is_file():
        raise CheckpointError(f"{file}: no such file; the model folder is incomplete")
    try:
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - safe_open is no mapping
                yield name, _FileTensor(tensors, name)
    except SafetensorError as error:
        raise CheckpointError(f"{file}: is truncated or corrupt ({error}); fetch it again") from error
    except OSError as error:
        raise CheckpointError(f"{file}: cannot be read: {error}") from error
