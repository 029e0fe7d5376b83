"""Trains an adapter of a draft on what the target writes for one kind of prompt. Knows which weights those are."""

from __future__ import annotations

import torch

from slipstream.models.adapter import Adapter
from slipstream.models.llama import LlamaModel
from slipstream.training.distillation import Distillation
from slipstream.training.generate import Chats
from slipstream.training.lora_model import attach, blank_adapter, trained_adapter
from slipstream.training.settings import LoraSettings


class LoraTraining(Distillation):
    """Only the adapter is trained; before the first step the draft is what it was without."""

    def __init__(
        self,
        target: LlamaModel,
        draft: LlamaModel,  # gets the adapter
        tokens: torch.Tensor,  # [draft vocab] the target's ids
        chats: Chats,
        settings: LoraSettings,
    ) -> None:
        self._blank = blank_adapter(draft.config, settings.rank, settings.alpha, settings.modules, settings.seed)
        super().__init__(target, draft, attach(draft, self._blank), tokens, chats, settings)

    @property
    def adapter(self) -> Adapter:
        return trained_adapter(self._blank, self.master.weights)
