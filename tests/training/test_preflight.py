"""What a training cannot end with is told before its target writes anything."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from slipstream.errors import CheckpointError
from slipstream.training.draft_lm_run import train_draft_lm
from slipstream.training.eagle3_run import train_eagle3
from slipstream.training.material import Places, Slice
from slipstream.training.pard_run import train_pard
from slipstream.training.preflight import check_first
from slipstream.training.settings import ChatSettings, DraftSettings, Eagle3Settings, PardSettings
from slipstream.training.state import TrainingState, as_settings, save_state

CHAT = ChatSettings(chat_tokens=2000, length=200, batch=4)
SETTINGS = DraftSettings(num_layers=2, draft_vocab_size=200, train_tokens=6000, batch=3)


@dataclass(frozen=True)
class Folders:
    target: Path
    run: Path
    out: Path


@pytest.fixture
def folders(target_folder: Path, tmp_path: Path) -> Folders:
    return Folders(target_folder, tmp_path / "run", tmp_path / "out")


def test_the_targets_configuration_comes_back_and_nothing_is_made(folders: Folders) -> None:
    assert check_first(folders, CHAT, SETTINGS).num_layers == 4
    assert not folders.run.exists()
    assert not folders.out.exists()


def test_rows_that_are_too_few_or_too_long_are_told(folders: Folders) -> None:
    with pytest.raises(ValueError, match="chat_tokens is 400, 2 rows of 200: fewer than a batch of 3"):
        check_first(folders, replace(CHAT, chat_tokens=400), SETTINGS)
    with pytest.raises(ValueError, match="length is 4000; it must be at most 2048, the target's"):
        check_first(folders, replace(CHAT, length=4000), SETTINGS)


def test_a_place_that_is_no_folder_is_told(folders: Folders, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="file is no folder that can be written to"):
        check_first(replace(folders, out=tmp_path / "file" / "draft"), CHAT, SETTINGS)


def test_a_state_of_other_settings_is_told(folders: Folders) -> None:
    save_state(TrainingState(3, {}, {}, as_settings(SETTINGS)), folders.run / "state")
    check_first(folders, CHAT, SETTINGS)
    with pytest.raises(CheckpointError, match=r"learning_rate = 0\.003, not 0\.1"):
        check_first(folders, CHAT, replace(SETTINGS, learning_rate=0.1))


def test_what_only_one_kind_needs_is_told_as_early(target_folder: Path, tmp_path: Path) -> None:
    places = Places(target=target_folder, run=tmp_path / "run", out=tmp_path / "out", prompts=tmp_path / "none")
    now, cpu = Slice(seconds=1, measure_every=1, say=print, progress=print), torch.device("cpu")
    with pytest.raises(ValueError, match=r"num_layers is 9; it must be in 1\.\.4"):
        train_draft_lm(places, CHAT, replace(SETTINGS, num_layers=9), cpu, now)
    with pytest.raises(ValueError, match=r"draft_vocab_size is 999; it must be in 1\.\.320"):
        train_draft_lm(places, CHAT, replace(SETTINGS, draft_vocab_size=999), cpu, now)
    with pytest.raises(ValueError, match=r"draft_vocab_size is 999; it must be in 1\.\.320"):
        train_eagle3(places, CHAT, Eagle3Settings(draft_vocab_size=200, stored_vocab_size=999, batch=3), cpu, now)
    with pytest.raises(ValueError, match="mask_token is 320; it must be below 320"):
        train_pard(places, CHAT, PardSettings(mask_token=320, batch=3), cpu, now, None)
    assert not places.run.exists()
