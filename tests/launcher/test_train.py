"""`slipstream train` says what it needs, and passes on what it is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from launcher.train import app
from slipstream.models.loader import load_model
from tests.tiny_models import make_checkpoint


def test_help_names_every_kind_of_training() -> None:
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    for command in ("draft-lm", "eagle3", "export"):
        assert command in result.output


def test_a_bad_option_is_told_by_name(tmp_path: Path) -> None:
    options = ["--target", "t", "--out", "o", "--prompts", "e", "--device", "cpu", "--layers", "0"]
    result = CliRunner().invoke(app, ["draft-lm", *options])
    assert isinstance(result.exception, ValueError)
    assert str(result.exception) == "num_layers is 0; it must be >= 1"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return make_checkpoint(tmp_path / "target", layers=3, tie_word_embeddings=True)


def test_a_draft_is_trained_stored_and_exported(target: Path, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(json.dumps({"prompt": "Count the yellow umbrellas."}) + "\n")
    options = {
        "target": target,
        "out": tmp_path / "draft",
        "prompts": prompts,
        "run": tmp_path / "run",
        "device": "cpu",
        "chat-tokens": 1200,
        "length": 200,
        "train-tokens": 1200,
        "layers": 2,
        "draft-vocab": 100,
        "batch": 2,
    }
    arguments = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    result = CliRunner().invoke(app, ["draft-lm", *arguments], catch_exceptions=False)
    assert "step 3/3" in result.output
    assert f"stored in {tmp_path / 'draft'}: acceptance length" in result.output
    exported = CliRunner().invoke(
        app, ["export", str(tmp_path / "draft"), str(tmp_path / "hf"), "--target", str(target)], catch_exceptions=False
    )
    assert exported.output.strip() == str(tmp_path / "hf")

    model = load_model(tmp_path / "hf", torch.float32, torch.device("cpu"))
    assert model.head is not None
    assert len(model.head) == 100


def test_a_bad_option_of_a_heads_training_is_told_by_name() -> None:
    options = ["--target", "t", "--out", "o", "--prompts", "e", "--device", "cpu", "--unroll-steps", "0"]
    result = CliRunner().invoke(app, ["eagle3", *options])
    assert isinstance(result.exception, ValueError)
    assert str(result.exception) == "unroll_steps is 0; it must be >= 1"
