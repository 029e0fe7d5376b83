"""A training in slices of time: where it stands, what it reports, how it goes on later. Knows no kind of drafter."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import torch

from slipstream.training.acceptance import Acceptance
from slipstream.training.dataset import batches
from slipstream.training.held_out import HeldOut
from slipstream.training.master_weights import MasterWeights
from slipstream.training.optimizer import Optimizer
from slipstream.training.state import TrainingState, as_settings, load_state, save_state

REPORT_EVERY_STEPS = 20
RESERVE = 0.03  # of a slice's time, when a training must end in it: for held-out measurements


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a training stands."""

    step: int
    num_steps: int
    loss: float  # mean over the tokens since the last report
    accepted: float  # likewise: share of draft tokens that a T = 1 verifier would accept
    tokens_per_second: float
    seconds_left: float
    held_out: Acceptance | None  # only measured now and then


@dataclass(frozen=True, slots=True)
class Ending:
    """What becomes of a training that a crash or the time may cut short."""

    keep: Callable[[], None]  # after each held-out measurement: what it saves a crash does not cost
    finish: bool = False  # in time, the schedule included: with fewer steps, if need be


GOES_ON: Final = Ending(keep=lambda: None)


class StepSettings(Protocol):
    @property
    def train_tokens(self) -> int: ...

    @property
    def batch(self) -> int: ...

    @property
    def seed(self) -> int: ...


class Training(Protocol):
    """A drafter being trained."""

    master: MasterWeights
    optimizer: Optimizer
    step: int
    num_steps: int

    @property
    def settings(self) -> StepSettings: ...

    @property
    def token_ids(self) -> torch.Tensor:
        """The rows that it learns from, [rows, length]."""

    def train_step(self, rows: torch.Tensor) -> torch.Tensor:
        """Learns from these rows. Sums over the learned tokens: loss, acceptance, and how many they are."""

    def acceptance(self, held_out: HeldOut) -> Acceptance: ...


def resume(training: Training, folder: Path) -> None:
    """Goes on from the state in `folder`, if there is one."""
    if state := load_state(folder, as_settings(training.settings)):
        training.master.load(state.weights)
        training.optimizer.load_momenta(state.momenta)
        training.step = state.step


def save(training: Training, folder: Path) -> None:
    momenta, settings = training.optimizer.momenta(), as_settings(training.settings)
    save_state(TrainingState(training.step, training.master.weights, momenta, settings), folder)


def run(
    training: Training,
    seconds: float,
    held_out: HeldOut,
    report: Callable[[Progress], None],
    every: float,
    ending: Ending = GOES_ON,
) -> bool:
    """Trains until done (True) or out of time; reports, with held-out acceptance every `every` seconds."""
    clock, whole = _Clock(training, seconds, every), training.num_steps
    sums = torch.zeros(3, device=training.token_ids.device)
    for rows in _remaining(training):
        if training.step >= training.num_steps:
            break
        sums += training.train_step(rows)
        training.step += 1
        last = training.step == training.num_steps
        if last or training.step % REPORT_EVERY_STEPS == 0:
            measured = training.acceptance(held_out) if last or clock.measurement_due() else None
            report(clock.progress(sums.tolist(), measured))
            if ending.finish and clock.warmed_up():
                training.num_steps = min(whole, clock.affordable_steps())
            sums.zero_()
            if measured is not None:
                ending.keep()
        if clock.out_of_time():
            break
    return training.step >= training.num_steps


def _remaining(training: Training) -> Iterator[torch.Tensor]:
    settings, token_ids = training.settings, training.token_ids
    order = batches(len(token_ids), settings.batch, settings.seed, training.step)
    for _, rows in zip(range(training.step, training.num_steps), order, strict=False):
        yield rows.to(token_ids.device, non_blocking=True)


class _Clock:
    """Time of one slice."""

    def __init__(self, training: Training, seconds: float, every: float) -> None:
        self._training, self._every = training, every
        self._start = self._measured = time.monotonic()
        self._deadline, self._reserve = self._start + seconds, RESERVE * seconds
        self._first_step = self._told_step = training.step
        self._told = self._start

    def out_of_time(self) -> bool:
        return time.monotonic() >= self._deadline

    def measurement_due(self) -> bool:
        if due := time.monotonic() - self._measured >= self._every:
            self._measured = time.monotonic()
        return due

    def warmed_up(self) -> bool:
        """Not in the first steps, which wait for a compiler."""
        return self._training.step > self._first_step + REPORT_EVERY_STEPS

    def affordable_steps(self) -> int:
        """Of the whole training, at the speed since this was last asked."""
        now, step = time.monotonic(), self._training.step
        per_step = (now - self._told) / max(step - self._told_step, 1)
        self._told, self._told_step = now, step
        return step + max(0, int((self._deadline - self._reserve - now) / max(per_step, 1e-9)))

    def progress(self, sums: list[float], held_out: Acceptance | None) -> Progress:
        training, elapsed = self._training, time.monotonic() - self._start
        per_step = elapsed / (training.step - self._first_step)
        loss, accepted, count = sums
        return Progress(
            step=training.step,
            num_steps=training.num_steps,
            loss=loss / max(count, 1),
            accepted=accepted / max(count, 1),
            tokens_per_second=training.settings.train_tokens / training.num_steps / per_step,
            seconds_left=per_step * (training.num_steps - training.step),
            held_out=held_out,
        )
