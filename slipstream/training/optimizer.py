"""Muon for matrices, AdamW for norms, one cosine schedule for both. Knows tensors; knows no model."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

WARMUP = 0.02  # share of the training
_MOMENTUM = "momentum_buffer"


class Optimizer:
    """Steps fp32 weights. Its lasting state is one momentum a matrix; the norms' small state starts anew each slice."""

    def __init__(self, weights: Mapping[str, torch.Tensor], learning_rate: float, weight_decay: float) -> None:
        self._weights = dict(weights)
        self._learning_rate = learning_rate
        matrices = [weight for weight in weights.values() if weight.dim() == 2]
        vectors = [weight for weight in weights.values() if weight.dim() != 2]
        self._muon = torch.optim.Muon(matrices, lr=0.0, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw")
        self._optimizers: list[torch.optim.Optimizer] = [self._muon]
        if vectors:
            self._optimizers.append(torch.optim.AdamW(vectors, lr=0.0, betas=(0.9, 0.99), weight_decay=0.0))

    def step(self, progress: float) -> None:
        """Applies the gradients and clears them. `progress` goes from 0 to 1 over the training."""
        torch.nn.utils.clip_grad_norm_(self._weights.values(), 1.0)
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self._learning_rate * schedule(progress)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    def momenta(self) -> dict[str, torch.Tensor]:
        state = self._muon.state
        return {name: state[weight][_MOMENTUM] for name, weight in self._weights.items() if weight in state}

    def load_momenta(self, momenta: Mapping[str, torch.Tensor]) -> None:
        for name, momentum in momenta.items():
            weight = self._weights[name]
            self._muon.state[weight][_MOMENTUM] = momentum.to(weight)


def schedule(progress: float) -> float:
    """Rises over the warm-up, then falls to 0 along a cosine."""
    if progress < WARMUP:
        return (progress + 1e-4) / WARMUP
    return 0.5 * (1 + math.cos(math.pi * min(1.0, (progress - WARMUP) / (1 - WARMUP))))
