"""fp32 copies of a bf16 model's weights, under their Hugging Face names, to be stepped. Knows no optimiser."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from slipstream.models.llama import LlamaModel
from slipstream.models.weight_names import Slot, weight_slots

EMBEDDINGS = ("model.embed_tokens.weight", "lm_head.weight")  # the target's, never trained


class MasterWeights:
    """bf16 has 8 bits of mantissa, too few to add small steps to; so steps are taken here and published."""

    def __init__(self, module: nn.Module, slots: Mapping[str, Slot]) -> None:
        self._parameters = dict(module.named_parameters())
        self._slots = dict(slots)
        self.weights = {name: self._rows(slot).detach().float().clone() for name, slot in self._slots.items()}

    @classmethod
    def of_draft(cls, model: LlamaModel) -> MasterWeights:
        """All weights of a draft LM but its embeddings."""
        slots = weight_slots(model.config)
        return cls(model, {name: slot for name, slot in slots.items() if name not in EMBEDDINGS})

    def gather_gradients(self) -> None:
        """Moves the model's gradients here."""
        for name, slot in self._slots.items():
            grad = self._parameters[slot.parameter].grad
            assert grad is not None, f"{slot.parameter} took no part in the loss"
            self.weights[name].grad = grad[slot.start : slot.start + slot.shape[0]].float()
        for parameter in self._parameters.values():
            parameter.grad = None

    @torch.no_grad()
    def publish(self) -> None:
        """Writes the weights, rounded, into the model."""
        rows = [self._rows(slot) for slot in self._slots.values()]
        torch._foreach_copy_(rows, list(self.weights.values()))

    def load(self, weights: Mapping[str, torch.Tensor]) -> None:
        for name, weight in self.weights.items():
            weight.copy_(weights[name])
        self.publish()

    def _rows(self, slot: Slot) -> torch.Tensor:
        return self._parameters[slot.parameter].detach()[slot.start : slot.start + slot.shape[0]]
