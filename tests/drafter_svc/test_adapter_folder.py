"""Callers load adapters from one directory, and from nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from drafter_svc.adapter_folder import AdapterFolder
from slipstream.errors import CheckpointError, InvalidRequest
from slipstream.models.adapter import WEIGHTS
from slipstream.models.loader import load_config, open_checkpoint
from tests.tiny_adapters import make_adapter
from tests.tiny_models import make_checkpoint


@pytest.fixture
def folder(tmp_path: Path) -> AdapterFolder:
    base = make_checkpoint(tmp_path / "base")
    make_adapter(base, tmp_path / "adapters" / "team" / "legal")
    make_adapter(base, tmp_path / "secret")
    return AdapterFolder(tmp_path / "adapters", load_config(open_checkpoint(base)), max_rank=8)


def test_a_folder_inside_is_read(folder: AdapterFolder) -> None:
    assert folder.load_allowed("team/legal").rank == 4
    assert folder.load_allowed(str(folder.directory) + "/team/../team/legal").rank == 4


@pytest.mark.parametrize("path", ["", ".", "..", "../secret", "team/../../secret", "/etc", "a\0b"])
def test_a_folder_outside_is_refused_before_anything_is_read(folder: AdapterFolder, path: str) -> None:
    with pytest.raises(InvalidRequest, match="--adapters-dir"):
        folder.load_allowed(path)


def test_links_that_lead_outside_are_followed_nowhere(folder: AdapterFolder, tmp_path: Path) -> None:
    inside = tmp_path / "adapters"
    (inside / "link").symlink_to(tmp_path / "secret")
    (inside / "team" / "legal" / WEIGHTS).unlink()
    (inside / "team" / "legal" / WEIGHTS).symlink_to(tmp_path / "secret" / WEIGHTS)
    for path in ("link", "team/legal"):
        with pytest.raises(InvalidRequest, match="--adapters-dir"):
            folder.load_allowed(path)


def test_without_a_directory_nobody_names_any() -> None:
    with pytest.raises(InvalidRequest, match="--adapters-dir"):
        AdapterFolder().load_allowed("legal")


def test_what_is_not_there_is_named(folder: AdapterFolder) -> None:
    with pytest.raises(CheckpointError, match=r"nowhere/adapter_config\.json: cannot be read"):
        folder.load_allowed("nowhere")
