"""The drafters that the repository ships: their sizes, their formats, and that cards and records tell the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from slipstream.models.adapter import load_adapter
from slipstream.models.config import ModelConfig
from slipstream.models.draft_checkpoint import draft_tokens, is_draft_folder
from slipstream.models.eagle3_checkpoint import load_eagle3_config, load_projection
from slipstream.models.pard import read_mask_token

DRAFTERS = Path(__file__).parents[1] / "drafters"
TARGET = "smollm2-135m-instruct"
DRAFT, HEAD = DRAFTERS / f"{TARGET}-draft", DRAFTERS / f"{TARGET}-eagle3"
ADAPTERS = [DRAFTERS / f"{TARGET}-draft-lease", DRAFTERS / f"{TARGET}-draft-sql"]
FOLDERS = [DRAFT, HEAD, *ADAPTERS]
MOST_BYTES = 24 << 20


def record(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "training.json").read_text(encoding="utf-8"))
    return found


def test_together_they_are_small_enough_to_ship() -> None:
    files = [file for file in DRAFTERS.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) <= MOST_BYTES


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_each_has_a_card_with_the_acceptance_of_its_record(folder: Path) -> None:
    card, length = (folder / "README.md").read_text(encoding="utf-8"), record(folder)["acceptance_length"]
    assert f"{length:.2f}" in card
    assert "slipstream train" in card


def test_one_set_of_weights_drafts_token_by_token_and_in_blocks() -> None:
    assert is_draft_folder(DRAFT)
    tokens = draft_tokens(DRAFT)
    assert tokens is not None
    assert len(tokens) == 12288
    assert read_mask_token(DRAFT) == 16
    assert record(DRAFT)["draft_model_acceptance_length"] >= 2.2
    assert record(DRAFT)["acceptance_length"] >= 2.1


def test_the_head_taps_the_layers_that_it_was_trained_on() -> None:
    config = load_eagle3_config(HEAD)
    assert config.tapped_layers(30) == (2, 15, 27)
    assert load_projection(HEAD, torch.float32, torch.device("cpu")).size == config.hidden_size
    assert record(HEAD)["shipped_head"]["acceptance_length"] >= 2.3
    assert record(HEAD)["shipped_head"]["draft_vocab_size"] == config.draft_vocab_size


@pytest.mark.parametrize("folder", ADAPTERS, ids=lambda folder: folder.name)
def test_an_adapter_fits_the_draft_and_raises_its_own_texts_acceptance_by_a_tenth(folder: Path) -> None:
    config = ModelConfig.from_hf(json.loads((DRAFT / "config.json").read_text(encoding="utf-8")))
    assert load_adapter(folder, config, 16).matrices
    assert record(folder)["draft"] == DRAFT.name
    measured = record(folder)["shipped_draft"]
    assert measured["acceptance_length"] >= 1.1 * measured["base_acceptance_length"]
