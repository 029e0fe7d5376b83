"""Distils a draft LM that begins as some of the target's layers. Knows which weights those are; not how they learn."""

from __future__ import annotations

import torch

from slipstream.models.llama import LlamaModel
from slipstream.training.distillation import Distillation
from slipstream.training.draft_model import draft_from_target, spread_layers
from slipstream.training.generate import Chats
from slipstream.training.master_weights import MasterWeights
from slipstream.training.settings import DraftSettings


class DraftTraining(Distillation):
    """All of the draft is trained but its embedding and head, which stay the target's."""

    settings: DraftSettings

    def __init__(self, target: LlamaModel, tokens: torch.Tensor, chats: Chats, settings: DraftSettings) -> None:
        layers = spread_layers(target.config.num_layers, settings.num_layers)
        draft = draft_from_target(target, layers, tokens)
        super().__init__(target, draft, MasterWeights.of_draft(draft), tokens, chats, settings)
