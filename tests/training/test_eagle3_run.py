"""From a target's folder to an EAGLE-3 head that other servers load, in slices."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from slipstream.models.eagle3_checkpoint import load_eagle3
from slipstream.models.loader import open_checkpoint
from slipstream.training.acceptance import Acceptance
from slipstream.training.eagle3_run import train_eagle3
from slipstream.training.material import REPORT_FILE, Places, Slice
from slipstream.training.settings import ChatSettings, Eagle3Settings

CPU = torch.device("cpu")
CHAT = ChatSettings(chat_tokens=800, length=200, batch=4)
HEAD = Eagle3Settings(
    draft_vocab_size=100, stored_vocab_size=150, unroll_steps=2, train_tokens=800, batch=2, num_draft_tokens=2
)


@pytest.fixture(scope="module")
def places(target_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Places:
    root = tmp_path_factory.mktemp("eagle3")
    (root / "prompts.jsonl").write_text(json.dumps({"prompt": "Count the yellow umbrellas."}) + "\n")
    return Places(target=target_folder, run=root / "run", out=root / "head", prompts=root / "prompts.jsonl")


@pytest.fixture(scope="module")
def trained(places: Places) -> tuple[Acceptance, list[str]]:
    """Two slices, the first without time for more than a step."""
    said: list[str] = []
    for seconds in (0.0, 600.0):
        now = Slice(seconds=seconds, measure_every=600.0, say=said.append, progress=lambda progress: None)
        acceptance = train_eagle3(places, CHAT, HEAD, CPU, now)
        assert (acceptance is None) == (seconds == 0.0)
    assert acceptance is not None
    return acceptance, said


def test_a_slice_goes_on_where_the_one_before_stopped(trained: tuple[Acceptance, list[str]]) -> None:
    starts = [line.split(",")[0] for line in trained[1] if line.startswith("before this slice")]
    assert starts == ["before this slice: step 0", "before this slice: step 1"]


def test_the_stored_head_has_the_formats_tensors_and_its_settings_beside_it(
    places: Places, trained: tuple[Acceptance, list[str]]
) -> None:
    names = load_file(places.out / "model.safetensors").keys()
    assert {"fc.weight", "lm_head.weight", "d2t", "t2d", "midlayer.self_attn.q_proj.weight"} <= names
    assert "embed_tokens.weight" not in names
    report = json.loads((places.out / REPORT_FILE).read_text())
    assert report["eagle3"]["unroll_steps"] == 2
    assert report["target"] == places.target.name
    assert report["acceptance_length"] == trained[0].length


def test_training_goes_on_from_a_stored_head(
    places: Places, trained: tuple[Acceptance, list[str]], tmp_path: Path
) -> None:
    said: list[str] = []
    now = Slice(seconds=600.0, measure_every=600.0, say=said.append, progress=lambda progress: None)
    again = replace(places, run=tmp_path / "run", out=tmp_path / "again")
    settings = replace(HEAD, stored_vocab_size=0, draft_vocab_size=150, train_tokens=400, learning_rate=1e-9)
    assert train_eagle3(again, CHAT, settings, CPU, now, places.out) is not None
    before, after = (load_file(folder / "model.safetensors") for folder in (places.out, again.out))
    for name in ("fc.weight", "midlayer.self_attn.q_proj.weight", "norm.weight"):
        assert torch.equal(before[name], after[name])
    assert json.loads((again.out / REPORT_FILE).read_text())["head"] == places.out.name


def test_a_head_of_other_features_is_not_gone_on_from(
    places: Places, trained: tuple[Acceptance, list[str]], tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(places.out, other)
    config = json.loads((other / "config.json").read_text())
    config["eagle_config"]["eagle_aux_hidden_state_layer_ids"] = [0, 1, 2]
    (other / "config.json").write_text(json.dumps(config))
    now = Slice(seconds=600.0, measure_every=600.0, say=print, progress=print)
    with pytest.raises(ValueError, match=r"not as heads are trained here, .* states of layers \(2, 2, 1\)"):
        train_eagle3(replace(places, run=tmp_path / "run"), CHAT, HEAD, CPU, now, other)


def test_the_stored_rows_of_the_head_are_the_targets(places: Places, trained: tuple[Acceptance, list[str]]) -> None:
    model, target_ids = load_eagle3(places.out, torch.bfloat16, CPU, open_checkpoint(places.target))
    assert target_ids is not None
    assert len(target_ids) == 150, "more than it was trained with"
    assert torch.equal(model.head, model.embedding[target_ids])


def test_the_state_is_small_enough_to_move(places: Places, trained: tuple[Acceptance, list[str]]) -> None:
    """Four bytes for each trained number: embedding and logits' rows are no part of it."""
    weights = load_file(places.out / "model.safetensors")
    num_trained = sum(w.numel() for name, w in weights.items() if name not in ("lm_head.weight", "d2t", "t2d"))
    state = sum(file.stat().st_size for file in (places.run / "state").glob("*.safetensors"))
    assert state < 4 * num_trained + 20_000  # names and shapes
