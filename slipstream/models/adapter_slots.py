"""Room for several adapters over one model, and who of them goes where. Knows layers; not names, tenants or files."""

from __future__ import annotations

from collections import defaultdict

import torch

from slipstream.layers.linear import Linear
from slipstream.layers.low_rank import LowRank
from slipstream.models.adapter import Adapter
from slipstream.models.llama import LlamaModel
from slipstream.models.weight_names import Slot, layer_slots


class AdapterSlots:
    """Gives each product of the model its additions; all memory that adapters will ever take is taken here."""

    def __init__(self, model: LlamaModel, num_slots: int, max_rank: int) -> None:
        self.num_slots, self.max_rank = num_slots, max_rank
        self._additions: list[LowRank] = []
        self._places: dict[str, tuple[LowRank, int, int]] = {}  # by matrix: of which product, first rank, first row
        slots = layer_slots(model.config, model.config)
        for layer, module in enumerate(model.layers):
            for parameter, parts in _products(slots).items():
                linear = module.get_submodule(parameter.removesuffix(".weight"))
                assert isinstance(linear, Linear)
                self._add_product(linear, f"model.layers.{layer}.", parts, model.embedding)

    @property
    def bytes_per_slot(self) -> int:
        return sum(addition.bytes_per_slot for addition in self._additions)

    @torch.no_grad()
    def fill(self, slot: int, adapter: Adapter) -> None:
        """From now on rows of this slot are the adapter's. What was there is gone."""
        for addition in self._additions:
            addition.clear(slot)
        for name, (down, up) in adapter.matrices.items():
            addition, first_rank, first_row = self._places[name]
            addition.fill(slot, (down, up * adapter.scale), first_rank, first_row)

    def _add_product(self, linear: Linear, prefix: str, parts: dict[str, Slot], like: torch.Tensor) -> None:
        """Matrices that are kept as one product have ranks of their own in it, one after another."""
        width, depth = sum(slot.shape[0] for slot in parts.values()), next(iter(parts.values())).shape[1]
        addition = LowRank(self.num_slots, len(parts) * self.max_rank, width, depth, like.detach())
        for index, (name, slot) in enumerate(parts.items()):
            self._places[prefix + name.removesuffix(".weight")] = addition, index * self.max_rank, slot.start
        linear.low_rank = addition
        self._additions.append(addition)


def _products(slots: dict[str, Slot]) -> dict[str, dict[str, Slot]]:
    """The matrices of one layer by the parameter that holds them."""
    products: defaultdict[str, dict[str, Slot]] = defaultdict(dict)
    for name, slot in slots.items():
        if len(slot.shape) == 2:
            products[slot.parameter][name] = slot
    return products
