"""A plot is a PNG, and what stands in its way is said before anything is measured."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from launcher.evaluation.plot import check_plot, save_plot
from launcher.evaluation.report import Evaluation
from slipstream.exchange import Commit


def test_every_evaluation_is_drawn_into_one_picture(tmp_path: Path) -> None:
    passes = [[Commit(1, 10, (1, 2), 1, 3, "ngram")]]
    evaluations = [Evaluation.of_passes("ngram", passes), Evaluation.of_passes("none", [[Commit(1, 10, (1,))]])]
    check_plot(tmp_path / "a.png")
    save_plot(evaluations, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG\r\n")


def test_what_cannot_be_drawn_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"must be a \.png file"):
        check_plot(tmp_path / "a.svg")
    with pytest.raises(ValueError, match="folder does not exist"):
        check_plot(tmp_path / "nowhere" / "a.png")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ValueError, match=r"\.\[eval\]"):
        check_plot(tmp_path / "a.png")
