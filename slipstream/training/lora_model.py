"""A draft with an adapter that can be trained beside its frozen weights. Knows layers; nothing of text or files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import torch
from torch import nn
from torch.nn.functional import pad

from slipstream.kernels.low_rank import RowGroups
from slipstream.layers.linear import Linear
from slipstream.models.adapter import Adapter, linear_shapes
from slipstream.models.config import ModelConfig
from slipstream.models.llama import LlamaModel
from slipstream.models.weight_names import Slot, layer_slots
from slipstream.training.master_weights import MasterWeights

MODULES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
_Pair: TypeAlias = tuple[torch.Tensor, torch.Tensor]


class AdaptedLinear(nn.Module):
    """base(x) + scale * up (down x) for each matrix of a product, each in its own rows."""

    def __init__(self, base: Linear, parts: Sequence[tuple[int, _Pair]], scale: float) -> None:
        """`parts`: first row of a matrix, and down [rank, depth], up [rows, rank]."""
        super().__init__()
        self.base, self._scale, self._starts = base, scale, [start for start, _ in parts]
        self.down = nn.ParameterList(down.to(base.weight) for _, (down, _) in parts)
        self.up = nn.ParameterList(up.to(base.weight) for _, (_, up) in parts)

    def forward(self, x: torch.Tensor, adapted: RowGroups | None = None) -> torch.Tensor:
        assert adapted is None, "this one is for all rows"
        output: torch.Tensor = self.base(x)
        for start, down, up in zip(self._starts, self.down, self.up, strict=True):
            added = x @ down.T @ up.T * self._scale
            output = output + pad(added, (start, output.shape[-1] - start - added.shape[-1]))
        return output


def blank_adapter(config: ModelConfig, rank: int, alpha: float, modules: Sequence[str], seed: int) -> Adapter:
    """One that changes nothing yet: random down, zero up."""
    if unknown := set(modules) - set(MODULES):
        raise ValueError(f"modules holds {min(unknown)!r}; known are {', '.join(MODULES)}")
    generator = torch.Generator().manual_seed(seed)
    matrices = {
        name: (torch.randn(rank, columns, generator=generator) / columns**0.5, torch.zeros(rows, rank))
        for name, (rows, columns) in linear_shapes(config).items()
        if name.rpartition(".")[2] in modules
    }
    return Adapter(rank, alpha, matrices)


def attach(draft: LlamaModel, adapter: Adapter) -> MasterWeights:
    """Freezes the draft and puts the adapter's products in the place of its own; gives what there is to train."""
    draft.requires_grad_(False)
    slots: dict[str, Slot] = {}
    for layer, module in enumerate(draft.layers):
        for parameter, parts in _adapted(draft.config, f"model.layers.{layer}.", adapter.matrices).items():
            path = parameter.removesuffix(".weight")
            base = module.get_submodule(path)
            assert isinstance(base, Linear)
            pairs = [(slot.start, adapter.matrices[name]) for name, slot in parts]
            module.set_submodule(path, AdaptedLinear(base, pairs, adapter.scale))
            for index, (name, _) in enumerate(parts):
                down, up = adapter.matrices[name]
                slots[f"{name}.lora_A"] = Slot(f"layers.{layer}.{path}.down.{index}", tuple(down.shape))
                slots[f"{name}.lora_B"] = Slot(f"layers.{layer}.{path}.up.{index}", tuple(up.shape))
    return MasterWeights(draft, slots)


def trained_adapter(blank: Adapter, weights: Mapping[str, torch.Tensor]) -> Adapter:
    """The adapter with the weights of `attach`, as training has left them."""
    matrices = {name: (weights[f"{name}.lora_A"], weights[f"{name}.lora_B"]) for name in blank.matrices}
    return Adapter(blank.rank, blank.alpha, matrices, blank.rank_stabilised)


def _adapted(config: ModelConfig, prefix: str, names: Mapping[str, _Pair]) -> dict[str, list[tuple[str, Slot]]]:
    """The adapted matrices of one layer, with their places, by the parameter that they are rows of."""
    found: defaultdict[str, list[tuple[str, Slot]]] = defaultdict(list)
    for name, slot in layer_slots(config, config).items():
        full = prefix + name.removesuffix(".weight")
        if full in names:
            found[slot.parameter].append((full, slot))
    return found
