"""What a training starts from is named when it is not there. (The rest: test_draft_lm_run.py, test_eagle3_run.py.)"""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstream.training.held_out import read_prompts
from slipstream.training.material import text_files


def test_a_text_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"own\.txt: no such text file"):
        text_files([tmp_path / "own.txt"])


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    file = tmp_path / "picture.png"
    file.write_bytes(b"\x89PNG")
    for read in (read_prompts, lambda path: text_files([path])):
        with pytest.raises(ValueError, match=r"picture\.png: is no UTF-8 text"):
            read(file)


def test_text_files_are_taken_in_the_order_given(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("b.txt", "a.txt")]
    for file in files:
        file.write_text("text")
    assert text_files(files) == tuple(files)
