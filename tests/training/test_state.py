"""A state survives the disk in small files, and is only continued under its own settings."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from slipstream.errors import CheckpointError
from slipstream.training import state
from slipstream.training.state import TrainingState, load_state, save_state

SETTINGS = {"learning_rate": 0.1, "batch": 4}


def some_state(step: int) -> TrainingState:
    weights = {f"layer.{i}": torch.randn(10, 6) for i in range(5)}
    momenta = {name: torch.randn(10, 6) for name in weights}
    return TrainingState(step, weights, momenta, SETTINGS)


def test_weights_and_momenta_come_back_rounded(tmp_path: Path) -> None:
    saved = some_state(7)
    save_state(saved, tmp_path / "state")
    loaded = load_state(tmp_path / "state", SETTINGS)
    assert loaded is not None
    assert loaded.step == 7
    for name in saved.weights:
        torch.testing.assert_close(loaded.weights[name].float(), saved.weights[name], rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(loaded.momenta[name].float(), saved.momenta[name], rtol=1e-2, atol=1e-4)


def test_a_new_state_replaces_the_old_one_whole(tmp_path: Path) -> None:
    save_state(some_state(7), tmp_path / "state")
    save_state(some_state(8), tmp_path / "state")
    loaded = load_state(tmp_path / "state", SETTINGS)
    assert loaded is not None
    assert loaded.step == 8
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_a_crash_between_two_states_costs_neither(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    save_state(some_state(7), folder)
    folder.rename(tmp_path / "state.former")  # as it is for a moment while a new one takes its place
    (tmp_path / "state.partial").mkdir()
    loaded = load_state(folder, SETTINGS)
    assert loaded is not None
    assert loaded.step == 7
    save_state(some_state(8), folder)
    save_state(some_state(9), tmp_path / "state.former")  # not removed any more
    assert [path.name for path in tmp_path.iterdir() if path.name != "state.former"] == ["state"]
    loaded = load_state(folder, SETTINGS)
    assert loaded is not None
    assert loaded.step == 8


def test_a_file_that_is_cut_off_is_named(tmp_path: Path) -> None:
    save_state(some_state(7), tmp_path / "state")
    file = tmp_path / "state" / "0.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match=r"0\.safetensors: .*to begin again"):
        load_state(tmp_path / "state", SETTINGS)


def test_no_file_is_larger_than_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "FILE_BYTES", 300)
    save_state(some_state(1), tmp_path / "state")
    files = list((tmp_path / "state").glob("*.safetensors"))
    assert len(files) == 5  # 10 tensors of 120 bytes
    loaded = load_state(tmp_path / "state", SETTINGS)
    assert loaded is not None
    assert len(loaded.momenta) == 5


def test_no_state_means_that_training_has_not_begun(tmp_path: Path) -> None:
    assert load_state(tmp_path / "state", SETTINGS) is None


def test_other_settings_are_refused_by_name_and_values(tmp_path: Path) -> None:
    save_state(some_state(7), tmp_path / "state")
    with pytest.raises(CheckpointError, match="batch = 4, not 8"):
        load_state(tmp_path / "state", SETTINGS | {"batch": 8})


def test_what_changes_only_the_speed_may_differ(tmp_path: Path) -> None:
    save_state(some_state(7), tmp_path / "state")
    assert load_state(tmp_path / "state", SETTINGS | {"compiled": True}) is not None
