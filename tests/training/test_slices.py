"""A training reports as it goes, ends when it is done or out of time, and goes on from its state."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import cast

import pytest
import torch

from slipstream.errors import CheckpointError
from slipstream.training import slices
from slipstream.training.acceptance import Acceptance
from slipstream.training.held_out import HeldOut
from slipstream.training.master_weights import MasterWeights
from slipstream.training.optimizer import Optimizer
from slipstream.training.slices import Ending, Progress

NOBODY = cast(HeldOut, None)


@dataclass(frozen=True)
class Settings:
    train_tokens: int = 45 * 2 * 4
    batch: int = 2
    seed: int = 3


class Counting:
    """Learns nothing; remembers which rows it was given."""

    def __init__(self, settings: Settings = Settings()) -> None:
        self.settings = settings
        self.token_ids = torch.zeros(6, 4, dtype=torch.int32)
        self.master = cast(MasterWeights, FakeMaster())
        self.optimizer = Optimizer(self.master.weights, 1e-3, 0.0)
        self.step, self.num_steps = 0, 45
        self.seen: list[list[int]] = []

    def train_step(self, rows: torch.Tensor) -> torch.Tensor:
        self.seen.append(rows.tolist())
        return torch.tensor([3.0, 1.0, 2.0])

    def acceptance(self, held_out: HeldOut) -> Acceptance:
        return Acceptance(1, (1,))


@dataclass
class FakeMaster:
    weights: dict[str, torch.Tensor] = field(default_factory=lambda: {"norm": torch.ones(2), "w": torch.ones(2, 2)})

    def load(self, weights: dict[str, torch.Tensor]) -> None:
        self.weights = {name: weight.float() for name, weight in weights.items()}


def test_it_reports_means_now_and_then_and_at_the_end() -> None:
    reports: list[Progress] = []
    assert slices.run(Counting(), 60.0, NOBODY, reports.append, every=1000.0)
    assert [report.step for report in reports] == [20, 40, 45]
    assert {(report.loss, report.accepted) for report in reports} == {(1.5, 0.5)}
    assert [report.held_out is None for report in reports] == [True, True, False]
    assert reports[-1].seconds_left == 0


def test_after_each_held_out_measurement_what_a_crash_must_not_cost_is_kept() -> None:
    training, kept = Counting(), list[int]()
    ending = Ending(keep=lambda: kept.append(training.step))
    slices.run(training, 60.0, NOBODY, lambda progress: None, every=0.0, ending=ending)
    assert kept == [20, 40, 45]


def test_told_to_finish_it_ends_its_schedule_in_time_with_fewer_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = count()
    monkeypatch.setattr(slices.time, "monotonic", lambda: next(ticks) * 1e-3)  # each look costs a millisecond
    training = Counting()
    training.num_steps = 1_000_000_000
    assert slices.run(training, 10.0, NOBODY, lambda progress: None, 1000.0, Ending(lambda: None, finish=True))
    assert training.step == training.num_steps < 1_000_000_000


def test_out_of_time_it_stops_and_goes_on_with_the_rows_that_follow(tmp_path: Path) -> None:
    whole, first, second = Counting(), Counting(), Counting()
    slices.run(whole, 60.0, NOBODY, lambda progress: None, every=1000.0)
    assert not slices.run(first, 0.0, NOBODY, lambda progress: None, every=1000.0)
    slices.save(first, tmp_path / "state")
    slices.resume(second, tmp_path / "state")
    assert slices.run(second, 60.0, NOBODY, lambda progress: None, every=1000.0)
    assert first.seen + second.seen == whole.seen


def test_a_state_of_other_settings_is_refused(tmp_path: Path) -> None:
    slices.save(Counting(), tmp_path / "state")
    with pytest.raises(CheckpointError, match="batch = 2, not 3"):
        slices.resume(Counting(Settings(batch=3)), tmp_path / "state")
