"""Stored drafts load with their target's embedding, and draft in the service as they were measured in training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from slipstream.config import EngineConfig
from slipstream.engine.loading import make_runner
from slipstream.errors import CheckpointError
from slipstream.kernels.batch import Chunk
from slipstream.models.draft_checkpoint import draft_tokens, save_draft, target_folder, tokenizer_folder
from slipstream.models.loader import load_model
from tests.tiny_models import make_checkpoint

CPU = torch.device("cpu")
TOKENS = torch.tensor([3, 4, 9, 100, 200, 319])


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("models") / "big", layers=3, tie_word_embeddings=True)


@pytest.fixture
def draft(target: Path, tmp_path: Path) -> Path:
    """Layers 0 and 1 of the target."""
    weights = load_file(target / "model.safetensors")
    kept = {
        name: weight
        for name, weight in weights.items()
        if "embed_tokens" not in name and not name.startswith("model.layers.2.")
    }
    config = json.loads((target / "config.json").read_text()) | {"num_hidden_layers": 2}
    save_draft(tmp_path / "draft", config, kept, TOKENS, "big")
    return tmp_path / "draft"


def test_a_stored_draft_has_the_targets_embedding_and_its_rows_of_the_head(target: Path, draft: Path) -> None:
    model = load_model(draft, torch.float32, CPU, target=target)
    embedding = load_file(target / "model.safetensors")["model.embed_tokens.weight"]
    assert torch.equal(model.embedding, embedding)
    assert model.head is not None
    assert torch.equal(model.head, embedding[TOKENS])


def test_its_layers_are_those_stored_but_for_the_rounding(target: Path, draft: Path) -> None:
    model = load_model(draft, torch.float32, CPU, target=target)
    expected = load_file(target / "model.safetensors")["model.layers.1.mlp.down_proj.weight"]
    torch.testing.assert_close(model.layers[1].mlp.down_proj.weight, expected, rtol=0, atol=0.01)
    assert not torch.equal(model.layers[1].mlp.down_proj.weight, expected)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_runner_gives_logits_of_the_drafts_tokens(target: Path, draft: Path, dtype: str) -> None:
    runner = make_runner(EngineConfig(model=draft, target_model=target, dtype=dtype, num_kv_blocks=4))
    logits = runner.forward([Chunk([5, 6, 7], 0, [1], num_logits=3)])
    assert logits.shape == (3, len(TOKENS))
    model = load_model(draft, torch.float32, CPU, target=target)
    with torch.no_grad():
        expected = model.logits(model.forward_dense(torch.tensor([[5, 6, 7]])))[0]
    torch.testing.assert_close(logits, expected, rtol=0.1, atol=1e-3 if dtype == "float32" else 0.15)


def test_the_target_is_found_by_its_name_among_the_fetched_models(
    target: Path, draft: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPSTREAM_MODELS", str(target.parent))
    assert target_folder(draft) == target
    assert tokenizer_folder(draft) == target
    assert tokenizer_folder(target) == target
    assert load_model(draft, torch.float32, CPU).head is not None


def test_a_target_that_is_not_there_is_named(draft: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SLIPSTREAM_MODELS", str(tmp_path / "none"))
    with pytest.raises(CheckpointError, match="is a draft of big, which is not at"):
        load_model(draft, torch.float32, CPU)


def test_the_draft_vocabulary_is_found_in_either_file(target: Path, draft: Path) -> None:
    assert torch.equal(draft_tokens(draft), TOKENS)
    assert draft_tokens(target) is None


def test_a_missing_scale_is_named(target: Path, draft: Path) -> None:
    tensors = load_file(draft / "model.safetensors")
    del tensors["model.layers.0.mlp.up_proj.weight.scale"]
    save_file(tensors, draft / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"up_proj\.weight\.scale is missing"):
        load_model(draft, torch.float32, CPU, target=target)


def test_tokens_outside_the_vocabulary_are_refused(target: Path, draft: Path) -> None:
    tensors = load_file(draft / "model.safetensors")
    tensors["d2t"][-1] = 10_000
    save_file(tensors, draft / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"d2t names ids outside 0\.\.319"):
        load_model(draft, torch.float32, CPU, target=target)


def test_a_target_that_the_draft_was_not_made_for_is_no_fault_of_the_targets(draft: Path, tmp_path: Path) -> None:
    other = make_checkpoint(tmp_path / "other", hidden=64)
    with pytest.raises(
        CheckpointError, match=r"draft: is a draft for a target whose .* is \[320, 32\]; that of .*other"
    ):
        load_model(draft, torch.float32, CPU, target=other)


def test_an_unknown_format_is_refused(target: Path, draft: Path) -> None:
    config = json.loads((draft / "config.json").read_text())
    config["slipstream_draft"]["format"] = "int3"
    (draft / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="int8-rows"):
        load_model(draft, torch.float32, CPU, target=target)
