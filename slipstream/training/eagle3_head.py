"""A fresh EAGLE-3 head for a target, with the part that makes its features. Knows models; nothing of text or files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import nn

from slipstream.models.eagle3 import Eagle3Model, FeatureProjection
from slipstream.models.eagle3_checkpoint import FC, weight_slots
from slipstream.models.eagle3_config import Eagle3Config, default_layer_ids
from slipstream.models.llama import DecoderLayer, LlamaModel
from slipstream.models.weight_names import Slot
from slipstream.training.draft_model import target_head
from slipstream.training.master_weights import MasterWeights

NOISE = 0.02


class FreshHead(nn.Module):
    """Embedding and logits' rows are the target's own and are not trained."""

    def __init__(self, target: LlamaModel, tokens: torch.Tensor, generator: torch.Generator) -> None:
        super().__init__()
        device, dtype = target.embedding.device, target.embedding.dtype
        self.config = head_config(target, tokens)
        with torch.device(device):
            self.model = Eagle3Model(self.config, dtype)
            self.projection = FeatureProjection(self.config, dtype)
        self.model.embedding = nn.Parameter(target.embedding.detach(), requires_grad=False)
        self.model.head = nn.Parameter(target_head(target)[tokens.to(device)], requires_grad=False)
        _begin_as_last_layer(self.model, self.projection, target, generator)

    def features(self, states: Sequence[torch.Tensor]) -> torch.Tensor:
        made: torch.Tensor = self.projection(states)
        return made

    def master_weights(self) -> MasterWeights:
        slots = {name: replace(slot, parameter=f"model.{slot.parameter}") for name, slot in self._slots.items()}
        shape = (self.config.hidden_size, self.config.projected_size)
        return MasterWeights(self, slots | {FC: Slot("projection.fc.weight", shape)})

    @property
    def _slots(self) -> dict[str, Slot]:
        return weight_slots(self.config)


def head_config(target: LlamaModel, tokens: torch.Tensor) -> Eagle3Config:
    """A layer of the target's own shape; the tapped layers are written down, whatever their usual places become."""
    config = target.config
    layer = replace(
        config,
        model_type="llama",
        num_layers=1,
        qkv_bias=False,
        output_bias=False,
        mlp_bias=False,
        qk_norm=False,
        tie_word_embeddings=False,
    )
    return Eagle3Config(
        layer=layer,
        draft_vocab_size=len(tokens),
        target_hidden_size=config.hidden_size,
        layer_ids=default_layer_ids(config.num_layers),
    )


@torch.no_grad()
def _begin_as_last_layer(
    model: Eagle3Model, projection: FeatureProjection, target: LlamaModel, generator: torch.Generator
) -> None:
    """The feature is the highest state at first, and the layer does to it what the target's last one does."""
    last, own = target.layers[-1], model.layer
    assert isinstance(last, DecoderLayer)
    assert projection.fc is not None
    hidden = target.config.hidden_size
    for weight in (own.attention.qkv_proj.weight, projection.fc.weight):
        noise = torch.randn(weight.shape, generator=generator) * NOISE
        weight.copy_(noise)
    projection.fc.weight[:, -hidden:] += torch.eye(hidden, device=projection.fc.weight.device)
    own.attention.qkv_proj.weight[:, hidden:] += last.attention.qkv_proj.weight
    own.attention.o_proj.weight.copy_(last.attention.o_proj.weight)
    own.mlp.load_state_dict(last.mlp.state_dict(), strict=False)
    own.input_norm.weight.fill_(1)
    own.hidden_norm.load_state_dict(last.input_norm.state_dict())
    own.mlp_norm.load_state_dict(last.mlp_norm.state_dict())
    model.norm.load_state_dict(target.norm.state_dict())
