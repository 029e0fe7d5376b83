"""The `slipstream` command: exit codes, and one line for what went wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest


def slipstream(*arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "launcher", *arguments]
    variables = {**os.environ, **(environment or {})}
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, env=variables)


def test_it_tells_its_version() -> None:
    result = slipstream("--version")
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


def test_every_mistake_in_a_file_is_a_line_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "slipstream.yaml"
    file.write_text("verifiers: [{dtype: int3, threads: -1}]")
    result = slipstream("config", "check", str(file))
    assert result.returncode == 2
    assert [line.split(" is ")[0] for line in result.stderr.splitlines()] == [
        f"error: {file}: verifiers[0].dtype",
        f"error: {file}: verifiers[0].threads",
    ]


def test_status_of_a_gateway_that_is_not_there_is_exit_code_1() -> None:
    result = slipstream("status", "--target", "127.0.0.1:1", "--json")
    assert (result.returncode, json.loads(result.stdout)[0]["health"]) == (1, "UNREACHABLE")


def test_a_shell_completes_its_commands() -> None:
    words = {"_SLIPSTREAM_COMPLETE": "complete_bash", "COMP_WORDS": "slipstream st", "COMP_CWORD": "1"}
    assert slipstream(environment=words).stdout.split() == ["status"]


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
