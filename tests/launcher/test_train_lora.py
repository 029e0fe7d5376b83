"""`slipstream train lora` passes on what it is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from launcher.train import app
from tests.tiny_models import make_checkpoint


@pytest.fixture
def options(tmp_path: Path) -> dict[str, object]:
    target = make_checkpoint(tmp_path / "target", tie_word_embeddings=True)
    prompts = tmp_path / "kind.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"Count to {i}."}) + "\n" for i in range(8)))
    return {
        "target": target,
        "draft": target,
        "out": tmp_path / "adapter",
        "text": prompts,
        "run": tmp_path / "run",
        "device": "cpu",
        "chat-tokens": 600,
        "length": 100,
        "train-tokens": 400,
        "rank": 4,
        "modules": "q_proj,v_proj",
        "held-out": 2,
        "batch": 2,
    }


def arguments(options: dict[str, object]) -> list[str]:
    return ["lora", *(part for name, value in options.items() for part in (f"--{name}", str(value)))]


def test_an_adapter_is_trained_and_stored(options: dict[str, object], tmp_path: Path) -> None:
    result = CliRunner().invoke(app, arguments(options), catch_exceptions=False)
    assert "step 2/2" in result.output
    assert f"stored in {tmp_path / 'adapter'}: base draft: acceptance length" in result.output
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert (config["r"], config["target_modules"]) == (4, ["q_proj", "v_proj"])


def test_a_bad_option_is_told_by_name(options: dict[str, object]) -> None:
    result = CliRunner().invoke(app, arguments(options | {"modules": "q_proj,lm_head"}))
    assert isinstance(result.exception, ValueError)
    assert "modules holds 'lm_head'" in str(result.exception)
