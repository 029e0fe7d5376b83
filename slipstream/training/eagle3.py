"""Trains an EAGLE-3 head on chats that the target wrote. Knows head, target and text; nothing of the command line."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from slipstream.models.llama import DecoderLayer, LlamaModel
from slipstream.training.acceptance import Acceptance, deep_acceptance
from slipstream.training.compiling import compiled
from slipstream.training.draft_model import target_head
from slipstream.training.draft_vocabulary import draft_first
from slipstream.training.eagle3_agreement import agreements
from slipstream.training.eagle3_head import FreshHead
from slipstream.training.eagle3_unroll import unroll
from slipstream.training.generate import Chats
from slipstream.training.held_out import HeldOut
from slipstream.training.losses import PLAIN, LossParts, chunked_loss
from slipstream.training.optimizer import Optimizer
from slipstream.training.settings import Eagle3Settings, objective_of


class Eagle3Training:
    """One head being trained (slices.py says when): the loss of unroll step s counts `step_decay` ** s."""

    def __init__(self, target: LlamaModel, tokens: torch.Tensor, chats: Chats, settings: Eagle3Settings) -> None:
        device = target.embedding.device
        self.settings = settings
        self._target = target.requires_grad_(False)
        self.tokens = tokens
        self.token_ids = chats.token_ids.to(device)
        self._answers = chats.answers.to(device)
        self.head = FreshHead(target, tokens, torch.Generator().manual_seed(settings.seed))
        self.master = self.head.master_weights()
        self.optimizer = Optimizer(self.master.weights, settings.learning_rate, settings.weight_decay)
        rows = target_head(target)[draft_first(tokens, target.config.vocab_size).to(device)]
        self._heads = (rows[: len(tokens)], rows)
        self._loss_parts = PLAIN
        self.num_steps = max(1, settings.train_tokens // (settings.batch * chats.token_ids.shape[1]))
        self.step = 0
        if settings.compiled:
            self._compile(target)

    def _compile(self, target: LlamaModel) -> None:
        self._loss_parts = LossParts(compiled(PLAIN.log_total), compiled(PLAIN.loss_and_gradient))
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
            matches = agreements(self.head, self._target, self.tokens, held_out.token_ids, self._num_draft_tokens)
        rows = [np.asarray(row[first:end]) for row, (first, end) in zip(matches, held_out.spans, strict=True)]
        return deep_acceptance(rows)

    def train_step(self, rows: torch.Tensor) -> torch.Tensor:
        """Sums over the first step's learned tokens: mean loss of all steps, acceptance, and how many they are."""
        token_ids = self.token_ids[rows].long()
        with torch.no_grad():
            target_hidden, states = self._target.forward_dense_tapped(token_ids, self.head.config.layer_ids)
        outputs = unroll(self.head.model, self.head.features(states), token_ids, self.settings.unroll_steps)
        drafts, wanted = self._learned(outputs, target_hidden, self._answers[rows])
        settings = self.settings
        sums = chunked_loss(
            [draft.detach() for draft in drafts],
            wanted,
            self._heads,
            objective_of(settings),
            settings.loss_chunk,
            self._loss_parts,
        )
        weights = self._step_weights
        torch.autograd.backward(drafts, [weight * of.hidden_grad for weight, of in zip(weights, sums, strict=True)])
        self.master.gather_gradients()
        self.optimizer.step(self.step / self.num_steps)
        self.master.publish()
        loss = torch.stack([weight * of.loss for weight, of in zip(weights, sums, strict=True)]).sum() / sum(weights)
        return torch.stack((loss, sums[0].accepted, loss.new_tensor(len(wanted))))

    def _learned(
        self, outputs: Sequence[torch.Tensor], target_hidden: torch.Tensor, answers: torch.Tensor
    ) -> tuple[list[torch.Tensor], torch.Tensor]:
        """Hidden states [learned, hidden] of every step and of the target, all asked for the same tokens.

        Row t of step s is asked for token t + 2 + s, of which the target's state one before it speaks. Tokens that
        not every step could draft, the first of a row, are left out.
        """
        first = len(outputs) + 1
        learned = answers[:, first:].flatten().nonzero().flatten()
        drafts = [
            self.head.model.norm(z[:, first - 2 - step : -2 - step]).flatten(0, 1)[learned]
            for step, z in enumerate(outputs)
        ]
        return drafts, target_hidden[:, first - 1 : -1].flatten(0, 1)[learned]

    @property
    def _step_weights(self) -> list[float]:
        return [self.settings.step_decay**step for step in range(self.settings.unroll_steps)]

    @property
    def _num_draft_tokens(self) -> int:
        return self.settings.num_draft_tokens
