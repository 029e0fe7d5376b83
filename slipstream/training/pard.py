"""Trains a draft LM to draft blocks in parallel, and on as a draft LM. Knows models and text; no command line."""

from __future__ import annotations

import torch

from slipstream.models.llama import LlamaModel
from slipstream.training.acceptance import Acceptance
from slipstream.training.compiling import compiled
from slipstream.training.distillation import Distillation
from slipstream.training.generate import Chats
from slipstream.training.held_out import HeldOut
from slipstream.training.master_weights import MasterWeights
from slipstream.training.pard_agreement import parallel_acceptance
from slipstream.training.pard_forward import PLAIN, LayerParts, packed_hidden
from slipstream.training.pard_layout import ParallelLayout
from slipstream.training.settings import PardSettings


class PardTraining(Distillation):
    """One draft being trained (slices.py says when).

    Real tokens and masks are asked for the target's distribution at their position; those of text that the target did
    not write are asked for nothing.
    """

    settings: PardSettings

    def __init__(
        self,
        target: LlamaModel,
        draft: LlamaModel,  # its weights are where this begins
        tokens: torch.Tensor,  # [draft vocab] ids of the target
        chats: Chats,
        settings: PardSettings,
    ) -> None:
        super().__init__(target, draft, MasterWeights.of_draft(draft), tokens, chats, settings)
        self._parts = PLAIN
        if settings.compiled:
            self._parts = LayerParts(
                compiled(PLAIN.into_attention, dynamic=False), compiled(PLAIN.after_attention, dynamic=False)
            )

    def acceptance(self, held_out: HeldOut) -> Acceptance:
        settings = self.settings
        with torch.compiler.set_stance("force_eager"):  # rows of all lengths: not worth compiling for
            return parallel_acceptance(
                self.draft, self._tokens, settings.mask_token, held_out, settings.num_draft_tokens
            )

    def _states_to_learn(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Of masks and tokens alike."""
        layout, token_ids = self._layout(), self.token_ids[rows].long()
        learned = self._learned(layout, rows)
        wanted = self._states.of(rows)[:, self._within(layout)].flatten(0, 1)[learned]
        hidden = packed_hidden(self.draft, layout, token_ids, self.settings.mask_token, self._parts)
        weigh_masks(hidden, layout, self.settings.mask_weight)
        return hidden.flatten(0, 1)[learned], wanted

    def _layout(self) -> ParallelLayout:
        """Another one at each step, the same when a step is done again."""
        generator = torch.Generator().manual_seed(self.settings.seed * 1_000_003 + self.step)
        length = self.token_ids.shape[1]
        return ParallelLayout.drawn(length, self.settings.num_parallel, generator).to(self.token_ids.device)

    def _learned(self, layout: ParallelLayout, rows: torch.Tensor) -> torch.Tensor:
        """Which of the flattened [rows, packed length] places are asked for a token that the target wrote."""
        asked_for = layout.positions + 1
        answers = self._answers[rows][:, asked_for.clamp_max(self.token_ids.shape[1] - 1)]
        return (answers & (asked_for < self.token_ids.shape[1])).flatten().nonzero().flatten()

    def _within(self, layout: ParallelLayout) -> torch.Tensor:
        """Positions, those past the text moved into it: nobody learns there."""
        return layout.positions.clamp_max(self.token_ids.shape[1] - 1)


def weigh_masks(
    hidden: torch.Tensor,  # [rows, packed length, hidden]
    layout: ParallelLayout,
    weight: float,
) -> None:
    """From now on the gradient of masks' states counts `weight` of what it is."""
    weights = torch.where(layout.groups > 0, weight, 1.0)[:, None].to(hidden.dtype)
    hidden.register_hook(lambda gradient: gradient * weights)  # type: ignore[no-untyped-call]
