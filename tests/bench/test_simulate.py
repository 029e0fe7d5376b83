"""Predictions from measured figures: right where the figures are the simulation's own."""

from __future__ import annotations

from typing import Any

import pytest

from bench.controller_machines import MACHINES
from bench.pipeline_simulation import Text
from bench.simulate import compare, explore, waiting_rules

STEP_MS, GAP_MS, DRAFT_MS, ROUND_TRIP_MS, K = 4.0, 1.0, 0.5, 1.0, 4


def point(**changed: Any) -> dict[str, Any]:
    figures = {
        "name": "none",
        "proposer": "none",
        "temperature": 0.0,
        "streams": 1,
        "decode_tokens_per_second": 1000 / (STEP_MS + GAP_MS),
        "step_ms": STEP_MS,
        "step_tokens": 1.0,
        "draft_ms": 0.0,
        "draft_step_ms": 0.0,
    }
    return figures | changed


def drafted(tokens_per_second: float) -> dict[str, Any]:
    return point(
        name="draft_model",
        proposer="draft_model",
        decode_tokens_per_second=tokens_per_second,
        step_tokens=1.0 + K,
        draft_ms=K * DRAFT_MS,
        draft_step_ms=DRAFT_MS,
        round_trip_ms=ROUND_TRIP_MS,
        num_draft_tokens=K,
        fan_out=0,
        max_wait_ms=50.0,
        acceptance_per_position=[1.0] * K,
        hit_rate=0.0,
        overlaps=True,
    )


def test_a_synchronous_run_is_predicted_from_its_times() -> None:
    expected = 1000 * (1 + K) / (STEP_MS + GAP_MS + ROUND_TRIP_MS + K * DRAFT_MS)
    (found,) = compare({"points": [point(), drafted(expected)]}, seconds=2.0)
    assert abs(found.error) < 0.02


def test_a_rate_that_these_times_cannot_bring_shows_as_an_error() -> None:
    expected = 1000 * (1 + K) / (STEP_MS + GAP_MS + ROUND_TRIP_MS + K * DRAFT_MS)
    (found,) = compare({"points": [point(), drafted(2 * expected)]}, seconds=2.0)
    assert found.error < -0.4


def test_with_enumeration_the_measured_hit_rate_is_met_first() -> None:
    full = 1000 * (1 + K) / (STEP_MS + GAP_MS)
    never, always = (
        next(compare({"points": [point(), drafted(full) | {"fan_out": 4, "hit_rate": hits}]}, seconds=0.3))
        for hits in (0.0, 1.0)
    )
    assert always.error == pytest.approx(0.0, abs=0.05)
    assert never.predicted < 0.85 * always.predicted


def test_every_rule_has_its_line_and_many_streams_never_wait() -> None:
    lines = list(explore(MACHINES["gpu-8b"], Text(acceptance=(0.7,)), 4, (1, 8), seconds=0.1))
    assert len(lines) == (2 + len(waiting_rules(MACHINES["gpu-8b"], 4))) + 3
