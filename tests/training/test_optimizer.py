"""The optimiser steps downhill on schedule, and goes on from saved momenta."""

from __future__ import annotations

import torch

from slipstream.training.optimizer import WARMUP, Optimizer, schedule


def weights() -> dict[str, torch.Tensor]:
    return {"matrix": torch.ones(4, 3), "norm": torch.ones(3)}


def step(optimizer: Optimizer, values: dict[str, torch.Tensor], progress: float) -> None:
    for value in values.values():
        value.grad = value.clone()
    optimizer.step(progress)


def test_every_kind_of_weight_moves_downhill() -> None:
    values = weights()
    optimizer = Optimizer(values, learning_rate=0.1, weight_decay=0.0)
    for _ in range(5):
        step(optimizer, values, 0.3)
    assert values["matrix"].sum() < 12
    assert values["norm"].sum() < 3


def test_the_schedule_rises_then_falls_to_nothing() -> None:
    assert 0 < schedule(0.0) < 0.01
    assert schedule(WARMUP) == 1.0
    assert schedule(0.5) > schedule(0.7) > schedule(1.0) == 0.0


def test_it_goes_on_from_saved_momenta() -> None:
    straight, resumed = weights(), weights()
    first = Optimizer(straight, learning_rate=0.1, weight_decay=0.0)
    step(first, straight, 0.3)
    resumed["matrix"].copy_(straight["matrix"])
    second = Optimizer(resumed, learning_rate=0.1, weight_decay=0.0)
    second.load_momenta(first.momenta())
    step(first, straight, 0.4)
    step(second, resumed, 0.4)
    torch.testing.assert_close(resumed["matrix"], straight["matrix"])


def test_gradients_are_gone_after_a_step() -> None:
    values = weights()
    step(Optimizer(values, learning_rate=0.1, weight_decay=0.0), values, 0.3)
    assert all(value.grad is None for value in values.values())
