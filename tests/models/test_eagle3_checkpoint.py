"""EAGLE-3 heads are read as the format says, whatever they share with the target, and what is written reads back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from slipstream.errors import CheckpointError
from slipstream.models.eagle3_checkpoint import (
    feature_fingerprint,
    is_eagle3_folder,
    load_eagle3,
    load_eagle3_config,
    load_projection,
    save_eagle3,
)
from slipstream.models.loader import open_checkpoint
from tests.models.eagle3_heads import HIDDEN, VOCAB, head_config, head_weights, make_head, write_head
from tests.tiny_models import make_checkpoint

CPU = torch.device("cpu")
DRAFT_IDS = [1, 2, 5, 9, 200, 319]


def without(weights: dict[str, torch.Tensor], *names: str) -> dict[str, torch.Tensor]:
    return {name: tensor for name, tensor in weights.items() if name not in names}


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("draft_ids", [None, DRAFT_IDS])
def test_what_a_head_lacks_is_the_targets(tied: bool, draft_ids: list[int] | None, tmp_path: Path) -> None:
    target = make_checkpoint(tmp_path / "target", tie_word_embeddings=tied)
    weights = without(head_weights(draft_ids), "embed_tokens.weight", "lm_head.weight")
    folder = write_head(tmp_path / "head", head_config(len(draft_ids or range(VOCAB))), weights)
    model, _ = load_eagle3(folder, torch.float32, CPU, open_checkpoint(target))
    theirs = load_file(target / "model.safetensors")
    embedding = theirs["model.embed_tokens.weight"]
    head = embedding if tied else theirs["lm_head.weight"]
    assert torch.equal(model.embedding, embedding)
    assert torch.equal(model.head, head if draft_ids is None else head[draft_ids])


def test_a_head_without_its_own_embedding_asks_for_the_target(tmp_path: Path) -> None:
    folder = write_head(tmp_path / "head", head_config(), without(head_weights(), "embed_tokens.weight"))
    with pytest.raises(CheckpointError, match=r"head: has no embed_tokens\.weight of its own; give the target"):
        load_eagle3(folder, torch.float32, CPU)
    other = make_checkpoint(tmp_path / "target", hidden=16)
    with pytest.raises(CheckpointError, match=r"makes \[320, 16\], not \[320, 32\]"):
        load_eagle3(folder, torch.float32, CPU, open_checkpoint(other))


def test_a_pickled_head_loads_as_well(tmp_path: Path) -> None:
    folder = make_head(tmp_path / "head", DRAFT_IDS)
    expected, _ = load_eagle3(folder, torch.float32, CPU)
    (folder / "model.safetensors").unlink()
    torch.save(head_weights(DRAFT_IDS), folder / "pytorch_model.bin")
    model, _ = load_eagle3(folder, torch.float32, CPU)
    assert torch.equal(model.head, expected.head)
    (folder / "pytorch_model.bin").write_bytes(b"no pickle")
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin: is truncated or corrupt"):
        load_eagle3(folder, torch.float32, CPU)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"norm.weight": None}, r"head: tensor norm\.weight is missing \(1 in all\)"),
        ({"norm.weight": torch.ones(7)}, r"model\.safetensors: tensor norm\.weight has shape \[7\], not \[32\]"),
        ({"fc.weight": torch.ones(32, 64)}, r"tensor fc\.weight has shape \[32, 64\], not \[32, 96\]"),
        ({"midlayer.rope": torch.ones(2)}, r"tensor midlayer\.rope is not part of an EAGLE-3 head"),
        ({"d2t": None}, r"tensor d2t is missing; a draft vocabulary of 6 of 320 tokens needs it"),
        ({"d2t": torch.tensor(DRAFT_IDS)}, r"d2t names ids outside 0\.\.319; entry i must be target id - i"),
        ({"d2t": torch.zeros(6)}, r"tensor d2t is torch\.float32; it must be whole numbers"),
        ({"d2t": torch.tensor([1, 0, 0, 0, 0, 0])}, r"tensor d2t names a token twice"),
    ],
)
def test_a_broken_head_is_told_by_file_tensor_and_shape(
    change: dict[str, torch.Tensor | None], message: str, tmp_path: Path
) -> None:
    changed = head_weights(DRAFT_IDS) | change
    weights = {name: tensor for name, tensor in changed.items() if tensor is not None}
    folder = write_head(tmp_path / "head", head_config(len(DRAFT_IDS)), weights)
    with pytest.raises(CheckpointError, match=message):
        load_eagle3(folder, torch.float32, CPU)


def test_a_head_on_three_states_needs_its_projection(tmp_path: Path) -> None:
    folder = write_head(tmp_path / "head", head_config(), without(head_weights(), "fc.weight"))
    with pytest.raises(CheckpointError, match=r"tensor fc\.weight is missing"):
        load_projection(folder, torch.float32, CPU)


@pytest.mark.parametrize("draft_ids", [None, DRAFT_IDS])
def test_what_is_written_reads_back_and_has_the_formats_names(draft_ids: list[int] | None, tmp_path: Path) -> None:
    layers = {"eagle_aux_hidden_state_layer_ids": [2, 3, 4], "use_aux_hidden_state": True}
    rope = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 64}
    entries = {"norm_before_residual": True, "eagle_config": layers, "rope_scaling": rope, "rope_theta": 5e5}
    first = make_head(tmp_path / "first", draft_ids, **entries)
    config = load_eagle3_config(first)
    ids = None if draft_ids is None else torch.tensor(draft_ids)
    weights = load_file(first / "model.safetensors")
    save_eagle3(tmp_path / "again", config, without(weights, "d2t", "t2d"), ids, torch.float32)
    assert load_eagle3_config(tmp_path / "again") == config
    assert is_eagle3_folder(tmp_path / "again")
    written = load_file(tmp_path / "again" / "model.safetensors")
    assert written.keys() == weights.keys()
    assert all(torch.equal(written[name], tensor) for name, tensor in weights.items())
    assert json.loads((tmp_path / "again" / "config.json").read_text())["eagle_config"] == layers
    assert load_projection(tmp_path / "again", torch.float32, CPU).size == HIDDEN


def test_int8_rows_read_back_but_for_the_rounding_and_take_a_quarter(tmp_path: Path) -> None:
    first = make_head(tmp_path / "first", DRAFT_IDS)
    weights = without(load_file(first / "model.safetensors"), "d2t", "t2d", "lm_head.weight", "embed_tokens.weight")
    config, small = load_eagle3_config(first), tmp_path / "small"
    save_eagle3(small, config, weights, torch.tensor(DRAFT_IDS), dtype=None)
    matrices = [weight for weight in weights.values() if weight.dim() == 2]
    stored = load_file(small / "model.safetensors")
    assert sum(t.nbytes for name, t in stored.items() if name.endswith(".int8")) * 4 == sum(m.nbytes for m in matrices)
    read = load_projection(small, torch.float32, CPU).fc
    assert read is not None
    largest = float(weights["fc.weight"].abs().max())
    torch.testing.assert_close(read.weight, weights["fc.weight"], rtol=0, atol=largest / 127)


def test_the_fingerprint_tells_projections_and_layers_apart_and_nothing_else(tmp_path: Path) -> None:
    eagle = {"eagle_aux_hidden_state_layer_ids": [2, 3, 4]}
    heads = [
        make_head(tmp_path / "0"),
        make_head(tmp_path / "1", seed=1),
        make_head(tmp_path / "2", eagle_config=eagle),
    ]
    assert len({feature_fingerprint(head) for head in heads}) == 3
    reduced = make_head(tmp_path / "3", norm_before_residual=True)
    assert feature_fingerprint(reduced) == feature_fingerprint(heads[0])
