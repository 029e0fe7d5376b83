"""A disk that is full is told with the place, and costs nothing that was stored before."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from slipstream.training import state
from slipstream.training.state import TrainingState, load_state, save_state
from slipstream.training.storing import storing


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), SafetensorError("I/O error")])
def test_the_place_is_named(error: Exception) -> None:
    told = r"run/state: cannot be written \(.*; with room there, the same command goes on"
    with pytest.raises(OSError, match=told), storing(Path("run/state")):
        raise error


def test_the_state_before_is_still_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise SafetensorError("No space left on device")

    made = TrainingState(7, {"a": torch.ones(3)}, {"a": torch.ones(3)}, {"batch": 4})
    save_state(made, tmp_path / "state")
    with monkeypatch.context() as patched:
        patched.setattr(state, "save_weights", full)
        with pytest.raises(OSError, match="No space left"):
            save_state(made, tmp_path / "state")
    assert load_state(tmp_path / "state", {"batch": 4}) is not None
    save_state(made, tmp_path / "state")
