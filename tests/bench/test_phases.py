"""The controller turns drafting off where it does not pay and on again, and says why: with the real model."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bench import phases
from bench.phases import Phase, as_wanted


def phase(temperature: float, **looks: int) -> Phase:
    return Phase(temperature=temperature, looks=looks, why="", promised="", drafted=0.0, accepted=0.0)


@pytest.mark.parametrize(
    ("hot", "after", "expected"), [({"none": 9, "ngram": 1}, 9, True), ({"none": 5, "ngram": 5}, 9, False),
                                   ({"none": 9}, 0, False)]
)  # fmt: skip
def test_mostly_off_at_high_temperature_and_mostly_on_beside_it_is_wanted(
    hot: dict[str, int], after: int, expected: bool
) -> None:
    run = [phase(0.0, draft_model=9), phase(1.5, **hot), phase(0.0, draft_model=after, none=9 - after)]
    assert as_wanted(run) is expected


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_auto_drafts_stories_at_0_not_at_1_5_and_at_0_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = tmp_path / "phases.json"
    monkeypatch.setattr(
        sys, "argv", ["phases", "--threads", "1", "--stories", "3", "--tokens", "64", "--json", str(told)]
    )
    with pytest.raises(SystemExit) as ended:
        phases.main()
    shown = capsys.readouterr().out
    assert not ended.value.code, shown
    _, hot, after = json.loads(told.read_text())
    assert hot["why"] == "drafting would hardly give more than it costs"
    assert after["accepted"] > 0.2 > hot["accepted"]
