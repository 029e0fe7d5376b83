"""`slipstream eval`: what it measures where, what it prints, and what it refuses before it loads anything."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from launcher.cli import evaluate
from tests.launcher.scripted_gateway import serving
from tests.tiny_models import make_checkpoint


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in ("one", "two", "three")))
    return file


def run(*arguments: str | Path) -> str:
    result = CliRunner().invoke(evaluate.app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_offline_and_through_a_gateway_stand_in_one_document_and_one_picture(prompts: Path, tmp_path: Path) -> None:
    target, plot = make_checkpoint(tmp_path / "target"), tmp_path / "plot.png"
    with serving() as (gateway, address):
        output = run(
            prompts, "--target", target, "--proposer", "ngram", "--gateway", address, "--num-prompts", "2",
            "--max-tokens", "6", "--json", "--plot", plot,
        )  # fmt: skip
    offline, online = json.loads(output)
    assert (offline["name"], offline["output_tokens"]) == ("ngram", 12)
    assert (online["name"], online["acceptance_length"]) == (f"through {address}", 2.0)
    assert [request.prompt.chat.messages[0].content for request in gateway.requests] == ["one", "two"]
    assert plot.is_file()


def test_a_failed_request_is_an_error_for_the_rest_would_be_other_prompts(tmp_path: Path) -> None:
    (tmp_path / "prompts.txt").write_text("refuse\none\n")
    with serving() as (_, address), pytest.raises(RuntimeError, match=r"1 requests.*no room now"):
        run(tmp_path / "prompts.txt", "--gateway", address)


def test_nothing_to_measure_is_refused(prompts: Path) -> None:
    with pytest.raises(ValueError, match="give --proposer, --gateway or both"):
        run(prompts)
