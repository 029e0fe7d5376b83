"""Trains an EAGLE-3 head on chats that the target wrote. Knows head, target and text; nothing of the command line."""

from __future__ import annotations

import numpy as np
import torch

from slipstream.models.llama import DecoderLayer, LlamaModel
from slipstream.training.acceptance import Acceptance, deep_acceptance
from slipstream.training.chain_attention import chain_attention
from slipstream.training.compiling import compiled
from slipstream.training.draft_model import target_head
from slipstream.training.draft_vocabulary import draft_first
from slipstream.training.eagle3_agreement import agreements
from slipstream.training.eagle3_head import FreshHead
from slipstream.training.eagle3_unroll import Attend, unroll
from slipstream.training.generate import Chats
from slipstream.training.held_out import HeldOut
from slipstream.training.losses import LossFn, LossSums, chunked_loss, loss_and_gradient
from slipstream.training.optimizer import Optimizer
from slipstream.training.settings import Eagle3Settings


class Eagle3Training:
    """One head being trained (slices.py says when): the loss of unroll step s counts `step_decay` ** s."""

    def __init__(self, target: LlamaModel, tokens: torch.Tensor, chats: Chats, settings: Eagle3Settings) -> None:
        device = target.embedding.device
        self.settings = settings
        self._target = target.requires_grad_(False)
        self._tokens = tokens
        self.token_ids = chats.token_ids.to(device)
        self._answers = chats.answers.to(device)
        self.head = FreshHead(target, tokens, torch.Generator().manual_seed(settings.seed))
        self.master = self.head.master_weights()
        self.optimizer = Optimizer(self.master.weights, settings.learning_rate, settings.weight_decay)
        rows = target_head(target)[draft_first(tokens, target.config.vocab_size).to(device)]
        self._heads = (rows[: len(tokens)], rows)
        self._loss_fn: LossFn = loss_and_gradient
        self.num_steps = max(1, settings.train_tokens // (settings.batch * chats.token_ids.shape[1]))
        self.step = 0
        self._attend: Attend = chain_attention
        if settings.compiled:
            self._compile(target)

    def _compile(self, target: LlamaModel) -> None:
        self._loss_fn = compiled(loss_and_gradient)
        self._attend = compiled(chain_attention, dynamic=False)
        for layer in target.layers:
            assert isinstance(layer, DecoderLayer)
            layer.forward_dense = compiled(layer.forward_dense)  # type: ignore[method-assign]
        own = self.head.model.layer
        own.attention_input = compiled(own.attention_input, dynamic=False)  # type: ignore[method-assign]
        own.after_attention = compiled(own.after_attention, dynamic=False)  # type: ignore[method-assign]
        own.attention.project = compiled(own.attention.project, dynamic=False)  # type: ignore[method-assign]

    def acceptance(self, held_out: HeldOut) -> Acceptance:
        """Of greedy drafting."""
        with torch.compiler.set_stance("force_eager"):  # rows of all lengths: not worth compiling for
            matches = agreements(self.head, self._target, self._tokens, held_out.token_ids, self._num_draft_tokens)
        rows = [np.asarray(row[first:end]) for row, (first, end) in zip(matches, held_out.spans, strict=True)]
        return deep_acceptance(rows)

    def train_step(self, rows: torch.Tensor) -> torch.Tensor:
        """Sums over the first step's learned tokens: mean loss of all steps, acceptance, and how many they are."""
        token_ids = self.token_ids[rows].long()
        with torch.no_grad():
            target_hidden, states = self._target.forward_dense_tapped(token_ids, self.head.config.layer_ids)
        outputs = unroll(
            self.head.model, self.head.features(states), token_ids, self.settings.unroll_steps, self._attend
        )
        losses, hidden, gradients = [], [], []
        for step, z in enumerate(outputs):
            drafted, sums = self._loss(step, z, target_hidden, self._answers[rows])
            weight = self._step_weights[step]
            hidden.append(drafted)
            gradients.append(sums.hidden_grad * weight)
            losses.append((weight * sums.loss / max(len(drafted), 1), sums.accepted, len(drafted)))
        torch.autograd.backward(hidden, gradients)
        self.master.gather_gradients()
        self.optimizer.step(self.step / self.num_steps)
        self.master.publish()
        mean = torch.stack([loss for loss, _, _ in losses]).sum() / sum(self._step_weights)
        _, accepted, count = losses[0]
        return torch.stack((mean * count, accepted, accepted.new_tensor(count)))

    def _loss(
        self, step: int, z: torch.Tensor, target_hidden: torch.Tensor, answers: torch.Tensor
    ) -> tuple[torch.Tensor, LossSums]:
        """Row t of the step is asked for token t + 2 + step, of which the target's state one before it speaks."""
        ahead = step + 2
        learned = answers[:, ahead:].flatten().nonzero().flatten()
        drafted = self.head.model.norm(z[:, :-ahead]).flatten(0, 1)[learned]
        wanted = target_hidden[:, ahead - 1 : -1].flatten(0, 1)[learned]
        sums = chunked_loss(
            drafted.detach(), wanted, self._heads, self.settings.objective, self.settings.loss_chunk, self._loss_fn
        )
        return drafted, sums

    @property
    def _step_weights(self) -> list[float]:
        return [self.settings.step_decay**step for step in range(self.settings.unroll_steps)]

    @property
    def _num_draft_tokens(self) -> int:
        return self.settings.num_draft_tokens
