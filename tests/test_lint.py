"""Format, lint and types: what `make lint` says, as tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("tool", ["ruff format --check .", "ruff check .", "mypy"])
@pytest.mark.timeout(300)  # mypy without a cache reads torch
def test_the_tool_has_nothing_to_say(tool: str) -> None:
    name, *arguments = tool.split()
    command = [str(Path(sys.executable).parent / name), *arguments]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=290, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
