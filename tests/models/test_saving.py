"""Weights are written, or it is said why not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from slipstream.models import saving
from slipstream.models.saving import save_weights


def test_what_is_written_can_be_read_by_everyone(tmp_path: Path) -> None:
    save_weights({"a": torch.ones(2)}, tmp_path / "w")
    assert load_file(tmp_path / "w")["a"].tolist() == [1, 1]
    assert (tmp_path / "w").stat().st_mode & 0o777 == 0o644


def test_a_place_that_takes_nothing_is_named(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=f"{tmp_path}: cannot be written"):
        save_weights({"a": torch.ones(2)}, tmp_path)


def test_a_disk_that_is_full_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object, **more: object) -> None:
        raise SafetensorError("I/O error: No space left on device")

    monkeypatch.setattr(saving, "save_file", full)
    with pytest.raises(OSError, match=r"w: cannot be written: .*No space left"):
        save_weights({"a": torch.ones(2)}, tmp_path / "w")
