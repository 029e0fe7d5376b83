"""From a target's folder to a stored parallel draft, from scratch or from a draft LM, and into the drafter."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from drafter_svc.proposers.pard import load_parallel_draft
from slipstream.config import EngineConfig
from slipstream.models.draft_checkpoint import draft_tokens
from slipstream.models.loader import load_model
from slipstream.models.pard import read_mask_token
from slipstream.training.acceptance import Acceptance
from slipstream.training.export import export_draft
from slipstream.training.material import REPORT_FILE, Places, Slice
from slipstream.training.pard_run import train_pard
from slipstream.training.settings import ChatSettings, PardSettings

CPU = torch.device("cpu")
CHAT = ChatSettings(chat_tokens=1200, length=120, batch=4)
SETTINGS = PardSettings(
    num_layers=2, draft_vocab_size=200, num_parallel=3, mask_token=319, train_tokens=2400, batch=4, num_draft_tokens=3
)


def a_slice(seconds: float, said: list[str]) -> Slice:
    return Slice(seconds=seconds, measure_every=600.0, say=said.append, progress=lambda progress: None)


@pytest.fixture(scope="module")
def places(target_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Places:
    root = tmp_path_factory.mktemp("training")
    (root / "prompts.jsonl").write_text(json.dumps({"prompt": "What grows in a garden pond?"}) + "\n")
    return Places(target=target_folder, run=root / "run", out=root / "pard", prompts=root / "prompts.jsonl")


@pytest.fixture(scope="module")
def trained(places: Places) -> Acceptance:
    """Two slices: one without time for more than a step, one that ends."""
    said: list[str] = []
    assert train_pard(places, CHAT, SETTINGS, CPU, a_slice(0.0, said), None) is None
    acceptance = train_pard(places, CHAT, SETTINGS, CPU, a_slice(600.0, said), None)
    starts = [line.split(",")[0] for line in said if line.startswith("before this slice")]
    assert starts == ["before this slice: step 0", "before this slice: step 1"]
    assert acceptance is not None
    return acceptance


def test_the_folder_says_what_it_is_and_how_it_measured(places: Places, trained: Acceptance) -> None:
    assert read_mask_token(places.out) == 319
    assert json.loads((places.out / "config.json").read_text())["spd_type"] == "pard"
    report = json.loads((places.out / REPORT_FILE).read_text())
    assert report["acceptance_length"] == trained.length
    assert report["pard"]["num_parallel"] == 3
    assert report["draft_model_acceptance_length"] >= 1


def test_the_drafter_loads_it_as_it_is_and_as_exported(places: Places, trained: Acceptance, tmp_path: Path) -> None:
    export_draft(places.out, tmp_path / "hf", places.target)
    for folder, target in ((places.out, places.target), (tmp_path / "hf", None)):
        engine = EngineConfig(model=folder, target_model=target, num_kv_blocks=8)
        drafter = load_parallel_draft(engine, num_target_ids=320, num_kept=8)
        assert drafter.limits.num_lookahead > 0


def test_training_goes_on_from_a_stored_draft_in_its_vocabulary(
    places: Places, trained: Acceptance, tmp_path: Path
) -> None:
    shutil.copytree(places.run, tmp_path / "run", ignore=shutil.ignore_patterns("state"))
    onward = Places(target=places.target, run=tmp_path / "run", out=tmp_path / "on", prompts=places.prompts)
    said: list[str] = []
    settings = PardSettings(**{name: getattr(SETTINGS, name) for name in ("mask_token", "num_parallel")}, batch=4,
                            train_tokens=480, learning_rate=1e-9, num_draft_tokens=3)  # fmt: skip
    assert train_pard(onward, CHAT, settings, CPU, a_slice(600.0, said), places.out) is not None
    before, after = draft_tokens(places.out), draft_tokens(onward.out)
    assert before is not None
    assert after is not None
    assert torch.equal(before, after)
    first, second = (
        load_model(folder, torch.float32, CPU, target=places.target) for folder in (places.out, onward.out)
    )
    for one, other in zip(first.layers.parameters(), second.layers.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=0.02, atol=0.02)


def test_a_folder_that_is_no_draft_is_refused(places: Places) -> None:
    with pytest.raises(ValueError, match="names no vocabulary"):
        train_pard(places, CHAT, SETTINGS, CPU, a_slice(600.0, []), places.target)
