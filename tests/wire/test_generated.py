"""The committed stubs are what `make proto` makes of proto/ today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMMITTED = ROOT / "slipstream" / "wire" / "v1"


def generated_files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.glob("*_pb2*.py*")}


def test_the_committed_stubs_are_those_of_the_proto_files(tmp_path: Path) -> None:
    settings = [f"BIN={Path(sys.executable).parent}", f"WIRE={tmp_path / 'wire'}", f"STAGE={tmp_path / 'stage'}"]
    command = ["make", "--silent", "--assume-old=.venv/.installed", "proto", *settings]
    subprocess.run(command, cwd=ROOT, check=True, timeout=60)
    assert generated_files(tmp_path / "wire") == generated_files(COMMITTED), "run `make proto` and commit what it makes"
