"""The simulated comparison: every setting meets the same requests, and seeds are averaged."""

from __future__ import annotations

import pytest

from bench.controller import CONTROLLER, FIXED, Point, Rounds, mean_point, spread
from bench.controller_machines import MACHINES, MIXED


def test_every_setting_is_measured_at_every_load() -> None:
    points = Rounds(MACHINES["cpu-shared"], MIXED, (1, 2), 1.0, seed=0).run(1)
    assert [point.streams for point in points] == [1, 2]
    assert all(set(point.rates) == {*FIXED, CONTROLLER} and min(point.rates.values()) > 0 for point in points)


def test_on_shared_cores_a_batch_is_slower_with_a_model_and_on_own_cores_faster() -> None:
    for machine, faster in (("cpu-shared", False), ("cpu-own", True)):
        (point,) = Rounds(MACHINES[machine], MIXED[:1], (4,), 1.0, seed=0).run(1)
        assert (point.rates["draft_model K=4"] > point.rates["none"]) is faster


def test_seeds_are_averaged_and_their_spread_is_that_of_the_ratio() -> None:
    seeds = [Point("", 4, {"none": 10.0, CONTROLLER: ours}) for ours in (9.0, 11.0)]
    mean = mean_point("mixed", seeds)
    assert (mean.ratio, mean.best_fixed) == (1.0, "none")
    assert spread(mean, seeds) == pytest.approx(0.1)
