"""A draft learns, token by token, what the target's distribution is on text that the target wrote. Knows two models.

What of the draft is trained is up to the weights it is given; nothing here knows of which kind they are.
"""

from __future__ import annotations

import torch

from slipstream.models.llama import LlamaModel
from slipstream.training.acceptance import Acceptance
from slipstream.training.compiling import compiled
from slipstream.training.draft_model import target_head
from slipstream.training.draft_vocabulary import draft_first
from slipstream.training.generate import Chats
from slipstream.training.held_out import HeldOut
from slipstream.training.losses import PLAIN, LossParts, chunked_loss
from slipstream.training.master_weights import MasterWeights
from slipstream.training.optimizer import Optimizer
from slipstream.training.settings import DistillationSettings, objective_of
from slipstream.training.target_states import TargetStates


class Distillation:
    """One draft being trained (slices.py says when)."""

    def __init__(
        self,
        target: LlamaModel,
        draft: LlamaModel,
        master: MasterWeights,  # of what is trained of the draft
        tokens: torch.Tensor,  # [draft vocab] the target's ids
        chats: Chats,
        settings: DistillationSettings,
    ) -> None:
        device = target.embedding.device
        self.settings, self.draft, self.master = settings, draft, master
        target.requires_grad_(False)
        self._tokens = tokens
        self.token_ids = chats.token_ids.to(device)
        self._answers = chats.answers.to(device)
        self.optimizer = Optimizer(master.weights, settings.learning_rate, settings.weight_decay)
        order = draft_first(tokens, target.config.vocab_size).to(device)
        self._heads = (target_head(draft), target_head(target)[order])
        self._loss_parts = PLAIN
        self.num_steps = max(1, settings.train_tokens // (settings.batch * chats.token_ids.shape[1]))
        self.step = 0
        if settings.compiled:
            self._loss_parts = LossParts(compiled(PLAIN.log_total), compiled(PLAIN.loss_and_gradient))
            for layer in (*target.layers, *draft.layers):
                layer.forward_dense = compiled(layer.forward_dense)
        self._states = TargetStates(target, self.token_ids, settings.batch, keep=settings.keep_states)

    def acceptance(self, held_out: HeldOut) -> Acceptance:
        with torch.compiler.set_stance("force_eager"):  # rows of all lengths: not worth compiling for
            return held_out.acceptance(self.draft, self._tokens, self.settings.num_draft_tokens)

    def train_step(self, rows: torch.Tensor) -> torch.Tensor:
        """Sums over the batch's learned tokens: loss, acceptance, and how many they are."""
        drafted, wanted = self._states_to_learn(rows)
        settings = self.settings
        (sums,) = chunked_loss(
            [drafted.detach()], wanted, self._heads, objective_of(settings), settings.loss_chunk, self._loss_parts
        )
        torch.autograd.backward(drafted, sums.hidden_grad)
        self.master.gather_gradients()
        self.optimizer.step(self.step / self.num_steps)
        self.master.publish()
        return torch.stack((sums.loss, sums.accepted, sums.loss.new_tensor(len(drafted))))

    def _states_to_learn(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Hidden states [learned, hidden] of the draft, and of the target, which are asked for the same tokens."""
        token_ids, answers = self.token_ids[rows].long(), self._answers[rows]
        # A state at position t is asked for the token at t + 1, so those before answer tokens are learned from.
        learned = answers[:, 1:].flatten().nonzero().flatten()
        target_hidden = self._states.of(rows)[:, :-1].flatten(0, 1)[learned]
        return self.draft.forward_dense(token_ids)[:, :-1].flatten(0, 1)[learned], target_hidden
