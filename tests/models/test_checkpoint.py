"""Folders of safetensors are read, and what is wrong with one is named."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from slipstream.errors import CheckpointError
from slipstream.models.checkpoint import INDEX, WEIGHTS, SafetensorsCheckpoint
from tests.tiny_models import make_checkpoint


def shard(path: Path) -> None:
    """Splits model.safetensors into two files and an index."""
    weights = load_file(path / WEIGHTS)
    names = sorted(weights)
    shards = {"part-1.safetensors": names[::2], "part-2.safetensors": names[1::2]}
    for file, members in shards.items():
        save_file({name: weights[name] for name in members}, path / file)
    weight_map = {name: file for file, members in shards.items() for name in members}
    (path / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    (path / WEIGHTS).unlink()


def test_shards_hold_what_the_single_file_held(tmp_path: Path) -> None:
    checkpoint = SafetensorsCheckpoint(make_checkpoint(tmp_path))
    whole = {name: tensor for name, _, tensor in checkpoint.tensors()}
    shard(tmp_path)
    sharded = {name: (file, tensor) for name, file, tensor in checkpoint.tensors()}
    assert whole.keys() == sharded.keys()
    assert all(torch.equal(whole[name], tensor) for name, (_, tensor) in sharded.items())
    assert {file.name for file, _ in sharded.values()} == {"part-1.safetensors", "part-2.safetensors"}


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    shard(make_checkpoint(tmp_path))
    (tmp_path / "part-2.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"part-2\.safetensors: no such file"):
        list(SafetensorsCheckpoint(tmp_path).tensors())


@pytest.mark.parametrize("size", [0, 4, 100, -1])
def test_a_truncated_file_is_named(tmp_path: Path, size: int) -> None:
    file = make_checkpoint(tmp_path) / WEIGHTS
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(CheckpointError, match=r"model\.safetensors: is truncated or corrupt"):
        list(SafetensorsCheckpoint(tmp_path).tensors())


def test_garbage_is_named(tmp_path: Path) -> None:
    (make_checkpoint(tmp_path) / WEIGHTS).write_bytes(b"\xff" * 4096)
    with pytest.raises(CheckpointError, match=r"model\.safetensors"):
        list(SafetensorsCheckpoint(tmp_path).tensors())


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"{", "not valid JSON"), (b"[1]", "holds a list"), (b"\xff\xfe\x00", "not valid JSON")],
)
def test_a_broken_config_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    (make_checkpoint(tmp_path) / "config.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"config\.json: .*{message}"):
        SafetensorsCheckpoint(tmp_path).config()


def test_a_missing_config_is_named_and_a_missing_generation_config_is_fine(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json: cannot be read: No such file"):
        SafetensorsCheckpoint(tmp_path).config()
    assert SafetensorsCheckpoint(tmp_path).generation_config() == {}


@pytest.mark.parametrize("index", [{}, {"weight_map": [1]}, {"weight_map": {"a": 1}}])
def test_an_index_without_a_map_is_named(tmp_path: Path, index: object) -> None:
    (tmp_path / INDEX).write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=r"index\.json: has no weight_map"):
        list(SafetensorsCheckpoint(tmp_path).tensors())


def test_an_index_cannot_point_outside_its_folder(tmp_path: Path) -> None:
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"a": "../elsewhere.safetensors"}}))
    with pytest.raises(CheckpointError, match="not a plain file name"):
        list(SafetensorsCheckpoint(tmp_path).tensors())
