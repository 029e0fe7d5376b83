"""The `slipstream` command: exit codes, and one line for what went wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def slipstream(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "launcher", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def test_it_tells_its_version() -> None:
    result = slipstream("version")
    assert (result.returncode, result.stdout.split()[0]) == (0, "slipstream")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("up", "--model", "/absent"), "model is /absent; it must be the path of something that exists"),
        (("generate", "Once", "--top-k=-1"), "-1"),
        (("model", "derive", "a", "b"), "give either --layers or --bits"),
    ],
)
def test_the_callers_mistake_is_one_line_and_exit_code_2(arguments: tuple[str, ...], said: str) -> None:
    result = slipstream(*arguments)
    assert result.returncode == 2
    assert result.stderr.startswith("error: ")
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_an_unknown_option_is_exit_code_2() -> None:
    assert slipstream("up", "--nonsense").returncode == 2


def test_a_gateway_that_is_not_there_is_one_line_and_exit_code_1() -> None:
    result = slipstream("generate", "Once", "--target", "127.0.0.1:1")
    assert result.returncode == 1
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1


def test_a_service_that_cannot_start_is_named_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    result = slipstream("up", "--model", str(tmp_path), "--listen", "127.0.0.1:0")
    assert result.returncode == 1
    assert result.stderr.startswith("error: verifier ended with exit code ")
    assert result.stderr.count("\n") == 1
