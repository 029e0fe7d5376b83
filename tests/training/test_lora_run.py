"""From a draft and prompts of one kind to PEFT's files, in slices; on its kind the adapter drafts better."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from slipstream.models.adapter import load_adapter
from slipstream.models.loader import load_config, open_checkpoint
from slipstream.training.lora_run import Gain, LoraPlaces, train_lora
from slipstream.training.material import REPORT_FILE, Slice
from slipstream.training.settings import ChatSettings, LoraSettings
from tests.tiny_models import make_checkpoint, make_similar_checkpoint

CPU = torch.device("cpu")
CHAT = ChatSettings(chat_tokens=3200, length=100, batch=32)
SETTINGS = LoraSettings(
    rank=8, alpha=16.0, num_held_out=6, train_tokens=100 * 4 * 16, batch=4, learning_rate=5e-3, seed=1
)


@pytest.fixture(scope="module")
def places(target_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> LoraPlaces:
    root = tmp_path_factory.mktemp("lora")
    draft = make_similar_checkpoint(target_folder, root / "draft", noise=0.3)
    asked = [
        f"What does a {animal} {verb}?" for animal in ("cat", "dog", "owl", "fox") for verb in ("eat", "see", "do")
    ]
    (root / "animals.jsonl").write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in asked))
    texts = (root / "animals.jsonl",)
    return LoraPlaces(target=target_folder, draft=draft, run=root / "run", out=root / "adapter", texts=texts)


def train(places: LoraPlaces, seconds: float, said: list[str]) -> Gain | None:
    now = Slice(seconds=seconds, measure_every=600.0, say=said.append, progress=lambda progress: None)
    return train_lora(places, CHAT, SETTINGS, CPU, now)


@pytest.fixture(scope="module")
def trained(places: LoraPlaces) -> tuple[Gain, list[str]]:
    """Two slices: one without time for more than a step, one that ends."""
    said: list[str] = []
    assert train(places, 0.0, said) is None
    gain = train(places, 600.0, said)
    assert gain is not None
    return gain, said


def test_on_text_of_its_kind_that_it_has_not_seen_a_tenth_more_is_accepted(trained: tuple[Gain, list[str]]) -> None:
    gain, _ = trained
    assert gain.adapted.length > 1.1 * gain.base.length
    assert gain.adapted.per_position[0] > 1.1 * gain.base.per_position[0]


def test_a_slice_goes_on_where_the_one_before_stopped(trained: tuple[Gain, list[str]]) -> None:
    starts = [line.split(";")[0] for line in trained[1] if line.startswith("before this slice")]
    assert starts == ["before this slice: step 0", "before this slice: step 1"]


def test_the_files_are_an_adapter_of_the_draft_and_the_record_says_what_it_gains(
    places: LoraPlaces, trained: tuple[Gain, list[str]]
) -> None:
    adapter = load_adapter(places.out, load_config(open_checkpoint(places.draft)), max_rank=8)
    assert (adapter.rank, adapter.scale) == (8, 2.0)
    record = json.loads((places.out / REPORT_FILE).read_text())
    assert record["base_acceptance_length"] == trained[0].base.length
    assert record["acceptance_length"] == trained[0].adapted.length
    assert record["lora"]["train_tokens"] == SETTINGS.train_tokens
    assert record["texts"] == ["animals.jsonl"]


def test_a_draft_of_another_vocabulary_is_refused_with_both_sizes(places: LoraPlaces, tmp_path: Path) -> None:
    other = make_checkpoint(tmp_path / "other", vocab_size=300)
    with pytest.raises(ValueError, match="300 token ids, and the target 320"):
        train(replace(places, draft=other, out=tmp_path / "out"), 0.0, [])
