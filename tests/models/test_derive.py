"""Cheaper models made of a model: fewer layers, rounded weights."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from slipstream.models.derive import round_weights, truncate_layers
from slipstream.models.loader import load_model
from tests.tiny_models import make_checkpoint


def test_a_truncated_model_is_the_first_layers_of_the_original(tmp_path: Path) -> None:
    src = make_checkpoint(tmp_path / "src", layers=3)
    truncate_layers(src, tmp_path / "dst", 2)
    before, after = load_file(src / "model.safetensors"), load_file(tmp_path / "dst" / "model.safetensors")
    assert {name for name in before if not name.startswith("model.layers.2.")} == set(after)
    assert all(torch.equal(before[name], tensor) for name, tensor in after.items())
    model = load_model(tmp_path / "dst", torch.float32, torch.device("cpu"))
    assert model.config.num_layers == 2


def test_the_tokenizer_comes_along(tmp_path: Path) -> None:
    src = make_checkpoint(tmp_path / "src")
    truncate_layers(src, tmp_path / "dst", 1)
    for file in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        assert (tmp_path / "dst" / file).read_bytes() == (src / file).read_bytes()


@pytest.mark.parametrize("layers", [0, 3])
def test_more_layers_than_there_are_is_refused(tmp_path: Path, layers: int) -> None:
    with pytest.raises(ValueError, match=rf"layers is {layers}; it must be in 1\.\.2"):
        truncate_layers(make_checkpoint(tmp_path / "src"), tmp_path / "dst", layers)


def test_rounded_matrices_have_few_values_per_group_and_stay_close(tmp_path: Path) -> None:
    src = make_checkpoint(tmp_path / "src")
    round_weights(src, tmp_path / "dst", bits=3, group=24)  # 32 columns: a group of 24 and one of 8
    before, after = load_file(src / "model.safetensors"), load_file(tmp_path / "dst" / "model.safetensors")
    name = "model.layers.0.self_attn.q_proj.weight"
    for old, new in zip(before[name].split(24, 1), after[name].split(24, 1), strict=True):
        assert max(len(row.unique()) for row in new) <= 8
        step = (old.amax(1, keepdim=True) - old.amin(1, keepdim=True)) / 7
        assert ((old - new).abs() <= step / 2 + 1e-6).all()
    assert not torch.equal(before[name], after[name])
    for untouched in ("model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"):
        assert torch.equal(before[untouched], after[untouched])


def test_senseless_bits_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="bits is 0"):
        round_weights(tmp_path, tmp_path / "dst", bits=0)


def test_a_model_is_never_written_over_itself_nor_over_a_file(tmp_path: Path) -> None:
    source, file = make_checkpoint(tmp_path / "source"), tmp_path / "file"
    file.touch()
    before = (source / "model.safetensors").read_bytes()
    for target in (source, tmp_path / "file"):
        with pytest.raises(ValueError, match="a folder to make, other than the model's own"):
            truncate_layers(source, target, 1)
    assert (source / "model.safetensors").read_bytes() == before
