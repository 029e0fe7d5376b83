"""A small draft of a target: some of its layers, its embedding, a part of its head. Knows models; nothing of files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import nn

from slipstream.models.llama import LlamaModel


def spread_layers(num_target_layers: int, num_layers: int) -> tuple[int, ...]:
    """Which layers of the target a draft begins as: the first, the last, and evenly between."""
    if not 1 <= num_layers <= num_target_layers:
        raise ValueError(f"num_layers is {num_layers}; it must be in 1..{num_target_layers}, the target's")
    if num_layers == 1:
        return (0,)
    return tuple(round(i * (num_target_layers - 1) / (num_layers - 1)) for i in range(num_layers))


def draft_from_target(target: LlamaModel, layers: Sequence[int], tokens: torch.Tensor) -> LlamaModel:
    """A draft over the target's ids `tokens`. Embedding and head stay the target's own values and are not trained."""
    device, dtype = target.embedding.device, target.embedding.dtype
    with torch.device(device):
        draft = LlamaModel(replace(target.config, num_layers=len(layers)), dtype)
    draft.embedding = nn.Parameter(target.embedding.detach(), requires_grad=False)
    draft.head = None if target.head is None else nn.Parameter(target.head.detach(), requires_grad=False)
    draft.reduce_head(tokens.to(device))
    draft.norm.load_state_dict(target.norm.state_dict())
    for layer, source in zip(draft.layers, layers, strict=True):
        layer.load_state_dict(target.layers[source].state_dict())
    return draft


def target_head(target: LlamaModel) -> torch.Tensor:
    """[vocab, hidden]"""
    return (target.embedding if target.head is None else target.head).detach()
