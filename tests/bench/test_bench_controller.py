"""The controller's bench: how rounds are added up, and a whole one with tiny services."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bench import bench_controller
from bench.bench_controller import FIXED, Measured
from bench.controller import CONTROLLER, totals
from bench.mixed_load import Replayed
from tests.tiny_models import make_checkpoint


def measured(ours: list[float], fixed: list[float]) -> Measured:
    found = Measured(4)
    for mine, theirs in zip(ours, fixed, strict=True):
        found.add(CONTROLLER, Replayed(num_tokens=round(100 * mine), seconds=100.0))
        found.add("none", Replayed(num_tokens=round(100 * theirs), seconds=100.0))
    return found


def test_a_point_is_all_tokens_over_all_seconds() -> None:
    found = measured([10.0, 30.0], [10.0, 10.0])
    found.add("none", Replayed(num_tokens=4000, seconds=200.0))
    assert found.point().rates == {CONTROLLER: 20.0, "none": 15.0}
    assert found.point().ratio == pytest.approx(4 / 3)


def test_a_machine_that_slows_down_for_all_alike_adds_nothing_to_the_spread() -> None:
    assert measured([20.0, 10.0], [10.0, 5.0]).spread() == pytest.approx(0.0)
    assert measured([20.0, 10.0], [10.0, 10.0]).spread() > 0.1


def test_a_fixed_setting_far_below_the_best_is_measured_no_more_and_the_controller_always_is() -> None:
    found = measured([1.0], [10.0])
    assert Measured(4).contenders == [*FIXED, CONTROLLER]
    found.add("ngram K=4", Replayed(num_tokens=900, seconds=100.0))
    found.add("draft_model K=2", Replayed(num_tokens=800, seconds=100.0))
    assert found.contenders == [CONTROLLER, "none", "ngram K=4"]
    assert found.seconds_of_a_round == pytest.approx(300, abs=1)


def test_totals_weigh_every_load_alike() -> None:
    points = [measured([1.0], [2.0]).point(), measured([300.0], [150.0]).point()]
    assert totals(points) == {CONTROLLER: 0.75, "none": 0.75}


@pytest.mark.slow
def test_tiny_services_are_measured_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_checkpoint(tmp_path / "model", max_position_embeddings=1024)
    options = f"--model {model} --draft-model {model} --threads 1 --streams 1,4 --rounds 2 --minutes 2 --answers 1"
    monkeypatch.setattr(sys, "argv", ["bench", *options.split(), "--json", str(tmp_path / "measured.json")])
    bench_controller.main()
    found = json.loads((tmp_path / "measured.json").read_text())
    assert found["rounds"] == 2
    assert [point["streams"] for point in found["points"]] == [1, 4]
    assert all(set(point["rates"]) == {*FIXED, CONTROLLER} and not point["failures"] for point in found["points"])
