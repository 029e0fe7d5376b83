"""Distils a draft LM from chats that the target wrote. Knows the model and its text; nothing of the command line."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from slipstream.models.llama import LlamaModel
from slipstream.training.acceptance import Acceptance
from slipstream.training.dataset import batches
from slipstream.training.draft_model import draft_from_target, spread_layers, target_head
from slipstream.training.draft_vocabulary import draft_first
from slipstream.training.generate import Chats
from slipstream.training.held_out import HeldOut
from slipstream.training.losses import LossFn, chunked_loss, loss_and_gradient
from slipstream.training.master_weights import MasterWeights
from slipstream.training.optimizer import Optimizer
from slipstream.training.settings import DraftSettings
from slipstream.training.state import TrainingState, as_settings, load_state, save_state
from slipstream.training.target_states import TargetStates

REPORT_EVERY_STEPS = 20


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


class DraftTraining:
    """One draft LM being trained, in slices if need be."""

    def __init__(self, target: LlamaModel, tokens: torch.Tensor, chats: Chats, settings: DraftSettings) -> None:
        device = target.embedding.device
        self.settings = settings
        target.requires_grad_(False)
        self._tokens = tokens
        self._token_ids = chats.token_ids.to(device)
        self._answers = chats.answers.to(device)
        layers = spread_layers(target.config.num_layers, settings.num_layers)
        self.draft = draft_from_target(target, layers, tokens)
        self.master = MasterWeights(self.draft)
        self._optimizer = Optimizer(self.master.weights, settings.learning_rate, settings.weight_decay)
        order = draft_first(tokens, target.config.vocab_size).to(device)
        head = target_head(target)[order]
        self._heads = (head[: len(tokens)], head)
        self._loss_fn: LossFn = loss_and_gradient
        self.num_steps = max(1, settings.train_tokens // (settings.batch * chats.token_ids.shape[1]))
        self.step = 0
        if settings.compiled:
            self._loss_fn = torch.compile(loss_and_gradient)
            for layer in (*target.layers, *self.draft.layers):
                layer.forward_dense = torch.compile(layer.forward_dense)
        self._states = TargetStates(target, self._token_ids, settings.batch, keep=settings.keep_states)

    def resume(self, folder: Path) -> None:
        """Goes on from the state in `folder`, if there is one."""
        if state := load_state(folder, as_settings(self.settings)):
            self.master.load(state.weights)
            self._optimizer.load_momenta(state.momenta)
            self.step = state.step

    def save(self, folder: Path) -> None:
        momenta = self._optimizer.momenta()
        save_state(TrainingState(self.step, self.master.weights, momenta, as_settings(self.settings)), folder)

    def run(self, seconds: float, held_out: HeldOut, report: Callable[[Progress], None], every: float) -> bool:
        """Trains until done (True) or out of time; reports, with held-out acceptance every `every` seconds."""
        clock = _Clock(self, seconds, every)
        sums = torch.zeros(3, device=self._token_ids.device)
        for rows in self._remaining():
            sums += self._train_step(rows)
            self.step += 1
            last = self.step == self.num_steps
            if last or self.step % REPORT_EVERY_STEPS == 0:
                measured = self.acceptance(held_out) if last or clock.measurement_due() else None
                report(clock.progress(sums.tolist(), measured))
                sums.zero_()
            if clock.out_of_time():
                break
        return self.step >= self.num_steps

    def acceptance(self, held_out: HeldOut) -> Acceptance:
        with torch.compiler.set_stance("force_eager"):  # rows of all lengths: not worth compiling for
            return held_out.acceptance(self.draft, self._tokens, self.settings.num_draft_tokens)

    def _remaining(self) -> Iterator[torch.Tensor]:
        order = batches(len(self._token_ids), self.settings.batch, self.settings.seed, self.step)
        for _, rows in zip(range(self.step, self.num_steps), order, strict=False):
            yield rows.to(self._token_ids.device, non_blocking=True)

    def _train_step(self, rows: torch.Tensor) -> torch.Tensor:
        """Sums over the batch's learned tokens: loss, acceptance, and how many they are."""
        token_ids, answers = self._token_ids[rows].long(), self._answers[rows]
        # A state at position t is asked for the token at t + 1, so those before answer tokens are learned from.
        learned = answers[:, 1:].flatten().nonzero().flatten()
        target_hidden = self._states.of(rows)[:, :-1].flatten(0, 1)[learned]
        draft_hidden = self.draft.forward_dense(token_ids)[:, :-1].flatten(0, 1)[learned]
        sums = chunked_loss(
            draft_hidden.detach(),
            target_hidden,
            self._heads,
            self.settings.objective,
            self.settings.loss_chunk,
            self._loss_fn,
        )
        torch.autograd.backward(draft_hidden, sums.hidden_grad)
        self.master.gather_gradients()
        self._optimizer.step(self.step / self.num_steps)
        self.master.publish()
        return torch.stack((sums.loss, sums.accepted, sums.loss.new_tensor(len(learned))))


class _Clock:
    """Time of one slice."""

    def __init__(self, training: DraftTraining, seconds: float, every: float) -> None:
        self._training, self._every = training, every
        self._start = self._measured = time.monotonic()
        self._deadline = self._start + seconds
        self._first_step = training.step

    def out_of_time(self) -> bool:
        return time.monotonic() >= self._deadline

    def measurement_due(self) -> bool:
        if due := time.monotonic() - self._measured >= self._every:
            self._measured = time.monotonic()
        return due

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
