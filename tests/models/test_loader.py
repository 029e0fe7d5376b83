"""Tensors of a checkpoint arrive in the right parameters, or are named."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from slipstream.errors import CheckpointError
from slipstream.models.checkpoint import WEIGHTS
from slipstream.models.llama import LlamaModel
from slipstream.models.loader import load_model
from tests.tiny_models import make_checkpoint

CPU = torch.device("cpu")


def load(path: Path, max_model_len: int = 0) -> LlamaModel:
    return load_model(path, torch.float32, CPU, max_model_len)


def rewrite(path: Path, **changes: torch.Tensor | None) -> None:
    """Replaces, adds or (None) removes tensors; `/` in a name stands for a dot."""
    weights = load_file(path / WEIGHTS)
    for name, tensor in changes.items():
        weights.pop(name.replace("/", "."), None)
        if tensor is not None:
            weights[name.replace("/", ".")] = tensor
    save_file(weights, path / WEIGHTS)


def test_fused_parameters_hold_the_parts_in_order(tmp_path: Path) -> None:
    weights = load_file(make_checkpoint(tmp_path) / WEIGHTS)
    layer = load(tmp_path).get_submodule("layers.1")
    prefix = "model.layers.1"
    qkv = torch.cat([weights[f"{prefix}.self_attn.{name}_proj.weight"] for name in "qkv"])
    gate_up = torch.cat([weights[f"{prefix}.mlp.{name}_proj.weight"] for name in ("gate", "up")])
    assert torch.equal(layer.get_parameter("attention.qkv_proj.weight"), qkv)
    assert torch.equal(layer.get_parameter("mlp.gate_up_proj.weight"), gate_up)


def test_weights_arrive_in_the_dtype_asked_for(tmp_path: Path) -> None:
    model = load_model(make_checkpoint(tmp_path), torch.bfloat16, CPU)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    rewrite(make_checkpoint(tmp_path), **{"model/layers/1/mlp/up_proj/weight": None})
    with pytest.raises(CheckpointError, match=rf"{tmp_path}: tensor model\.layers\.1\.mlp\.up_proj\.weight is missing"):
        load(tmp_path)


def test_a_tensor_of_another_shape_is_named(tmp_path: Path) -> None:
    rewrite(make_checkpoint(tmp_path), **{"model/norm/weight": torch.ones(7)})
    with pytest.raises(CheckpointError, match=r"model\.safetensors: tensor model\.norm\.weight has shape \[7\], not"):
        load(tmp_path)


def test_a_tensor_that_the_model_does_not_have_is_refused(tmp_path: Path) -> None:
    rewrite(make_checkpoint(tmp_path), **{"model/layers/0/self_attn/q_proj/bias": torch.ones(32)})
    with pytest.raises(CheckpointError, match=r"self_attn\.q_proj\.bias is not part of a llama model"):
        load(tmp_path)


@pytest.mark.parametrize("dtype", [torch.int8, torch.bool, torch.float8_e4m3fn])
def test_weights_of_a_quantised_model_are_refused(tmp_path: Path, dtype: torch.dtype) -> None:
    make_checkpoint(tmp_path)
    rewrite(tmp_path, **{"lm_head/weight": torch.ones(320, 32).to(dtype)})
    with pytest.raises(CheckpointError, match=rf"lm_head.weight is {dtype}, of a quantised model"):
        load(tmp_path)


def test_copies_of_what_is_known_are_ignored(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, tie_word_embeddings=True)
    rewrite(tmp_path, **{"lm_head/weight": torch.ones(320, 32), "model/rotary_emb/inv_freq": torch.ones(4)})
    assert load(tmp_path).head is None


def test_a_sliding_window_is_refused_only_where_it_would_matter(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, model_type="mistral", sliding_window=64)
    with pytest.raises(CheckpointError, match=r"over 64 tokens is not supported; set max_model_len \(now 512\)"):
        load(tmp_path)
    load(tmp_path, max_model_len=64)


def test_an_unknown_architecture_names_the_folder(tmp_path: Path) -> None:
    config = json.loads((make_checkpoint(tmp_path) / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": "mamba"}))
    with pytest.raises(CheckpointError, match=rf"{tmp_path}: config: model_type is 'mamba'"):
        load(tmp_path)


def test_a_path_that_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="nowhere: is no model"):
        load(tmp_path / "nowhere")
