"""Which folders hold a model that drafts in parallel, and what is said of the others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slipstream.errors import CheckpointError
from slipstream.models.pard import pard_entries, read_mask_token


def folder(tmp_path: Path, **entries: object) -> Path:
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 100} | entries))
    return tmp_path


def test_what_training_writes_is_read(tmp_path: Path) -> None:
    assert read_mask_token(folder(tmp_path, **pard_entries(16))) == 16


@pytest.mark.parametrize("mask_token", [None, "16", True, -1, 100])
def test_a_mask_that_is_no_token_of_the_vocabulary_is_refused_by_file_and_value(
    tmp_path: Path, mask_token: object
) -> None:
    with pytest.raises(CheckpointError, match=r"config\.json: pard_token is .*below vocab_size"):
        read_mask_token(folder(tmp_path, pard_token=mask_token))


def test_another_kind_of_parallel_draft_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="spd_type is 'other'"):
        read_mask_token(folder(tmp_path, pard_token=16, spd_type="other"))


def test_a_file_in_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no folder with a config\.json"):
        read_mask_token(tmp_path / "model.gguf")
