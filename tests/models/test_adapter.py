"""PEFT folders: what is read is what was written, and whatever is not known is refused by name."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from slipstream.errors import CheckpointError
from slipstream.models.adapter import CONFIG, WEIGHTS, load_adapter, save_adapter
from slipstream.models.config import ModelConfig
from slipstream.models.loader import load_config, open_checkpoint
from tests.tiny_adapters import make_adapter, only, random_adapter
from tests.tiny_models import make_checkpoint

MAX_RANK = 16
Q = "model.layers.0.self_attn.q_proj"
PREFIX = "base_model.model."


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("base") / "tiny")


@pytest.fixture(scope="module")
def config(base: Path) -> ModelConfig:
    return load_config(open_checkpoint(base))


@pytest.fixture
def folder(base: Path, tmp_path: Path) -> Path:
    return make_adapter(base, tmp_path / "legal")


def change(folder: Path, **entries: Any) -> None:
    file = folder / CONFIG
    file.write_text(json.dumps(json.loads(file.read_text()) | entries))


def test_what_is_read_is_what_was_written(folder: Path, config: ModelConfig) -> None:
    written, read = random_adapter(config), load_adapter(folder, config, MAX_RANK)
    assert (read.rank, read.scale) == (4, 2.0)
    assert read.matrices.keys() == written.matrices.keys()
    for name, (down, up) in written.matrices.items():
        assert torch.equal(read.matrices[name][0], down)
        assert torch.equal(read.matrices[name][1], up)


def test_rank_stabilised_adapters_are_scaled_by_the_root_of_the_rank(folder: Path, config: ModelConfig) -> None:
    change(folder, use_rslora=True)
    assert load_adapter(folder, config, MAX_RANK).scale == 8.0 / math.sqrt(4)


def test_an_adapter_may_leave_modules_out(config: ModelConfig, tmp_path: Path) -> None:
    save_adapter(tmp_path, only(random_adapter(config), "q_proj", "down_proj"), "tiny")
    read = load_adapter(tmp_path, config, MAX_RANK)
    assert {name.rpartition(".")[2] for name in read.matrices} == {"q_proj", "down_proj"}


@pytest.mark.parametrize(
    "entries, words",
    [
        ({"peft_type": "IA3"}, "peft_type is 'IA3'"),
        ({"use_dora": True}, "use_dora is True"),
        ({"bias": "all"}, "bias is 'all'"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"rank_pattern": {"q_proj": 8}}, "rank_pattern"),
        ({"fan_in_fan_out": True}, "fan_in_fan_out"),
        ({"layers_to_transform": [0]}, "layers_to_transform"),
        ({"something_new": "on"}, "something_new is 'on'"),
        ({"init_lora_weights": "pissa"}, "init_lora_weights is 'pissa'"),
        ({"target_modules": ["q_proj", "lm_head"]}, "target_modules names 'lm_head'"),
        ({"target_modules": None}, "target_modules is None"),
        ({"r": 17}, r"r is 17; it must be in 1\.\.16"),
        ({"r": "4"}, "r is '4'"),
        ({"r": 8}, r"has shape \[4, 64\], not \[8, 64\]"),
        ({"lora_alpha": None}, "lora_alpha is None"),
    ],
)
def test_other_kinds_are_refused_by_name(
    folder: Path, config: ModelConfig, entries: dict[str, Any], words: str
) -> None:
    change(folder, **entries)
    with pytest.raises(CheckpointError, match=words) as refusal:
        load_adapter(folder, config, MAX_RANK)
    assert str(folder) in str(refusal.value)


def test_defaults_that_other_programs_write_out_are_no_reason_to_refuse(folder: Path, config: ModelConfig) -> None:
    defaults = {"alpha_pattern": {}, "modules_to_save": None, "lora_bias": False, "layer_replication": None}
    change(folder, **defaults, peft_version="0.21.2", qalora_group_size=16, revision=None, lora_dropout=0.05)
    assert load_adapter(folder, config, MAX_RANK).rank == 4


@pytest.mark.parametrize(
    "name, tensor, words",
    [
        (f"{Q}.lora_B.weight", None, f"{PREFIX}{Q}.lora_B.weight is missing"),
        (f"{Q}.lora_B.weight", torch.zeros(3, 4), r"has shape \[3, 4\], not \[32, 4\]"),
        (f"{Q}.lora_A.weight", torch.full((4, 32), torch.nan), "no numbers"),
        (f"{Q}.lora_magnitude_vector", torch.zeros(32), "lora_magnitude_vector is no part of a LoRA adapter"),
        ("model.embed_tokens.lora_A.weight", torch.zeros(4, 32), "model.embed_tokens, which is no linear layer"),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_name(
    folder: Path, config: ModelConfig, name: str, tensor: torch.Tensor | None, words: str
) -> None:
    tensors = load_file(folder / WEIGHTS)
    if tensor is None:
        del tensors[PREFIX + name]
    else:
        tensors[PREFIX + name] = tensor
    save_file(tensors, folder / WEIGHTS)
    with pytest.raises(CheckpointError, match=words):
        load_adapter(folder, config, MAX_RANK)


def test_a_module_that_is_named_and_not_there_is_missed(config: ModelConfig, tmp_path: Path) -> None:
    save_adapter(tmp_path, only(random_adapter(config), "q_proj"), "tiny")
    change(tmp_path, target_modules=["q_proj", "v_proj"])
    with pytest.raises(CheckpointError, match=r"has nothing for model\.layers\.0\.self_attn\.v_proj"):
        load_adapter(tmp_path, config, MAX_RANK)


def test_files_that_are_missing_or_cut_are_named(folder: Path, config: ModelConfig) -> None:
    whole = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CheckpointError, match=f"{WEIGHTS}: is truncated"):
        load_adapter(folder, config, MAX_RANK)
    (folder / WEIGHTS).unlink()
    with pytest.raises(CheckpointError, match=f"{WEIGHTS}: is missing"):
        load_adapter(folder, config, MAX_RANK)
    with pytest.raises(CheckpointError, match=f"{CONFIG}: cannot be read"):
        load_adapter(folder / "nowhere", config, MAX_RANK)


def test_the_scale_is_that_of_the_files(config: ModelConfig) -> None:
    assert replace(random_adapter(config), alpha=1.0).scale == 0.25
