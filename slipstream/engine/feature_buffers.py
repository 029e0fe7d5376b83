"""The target's features of the tokens a draft loop begins with, at fixed addresses. Knows no model and no slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from slipstream.engine.draft_buffers import LoopRow, LoopSize


class FeatureStep(Protocol):
    """A draft step that is fed with features."""

    def put_features(
        self, features: torch.Tensor, given: torch.Tensor, context_lens: torch.Tensor, block_tables: torch.Tensor
    ) -> None:
        """Has the next step take them for its rows, where they are given."""


class FeatureBuffers:
    """For loops up to a size; smaller ones use the front of the same memory."""

    def __init__(self, step: FeatureStep, largest: LoopSize, feature_size: int, device: torch.device) -> None:
        self._step, pinned = step, device.type == "cuda"
        shape = (largest.num_tokens, feature_size)
        self._host = torch.zeros(shape, dtype=torch.bfloat16, pin_memory=pinned)
        self._host_given = torch.zeros(largest.num_tokens, dtype=torch.bool, pin_memory=pinned)
        self._on_device, self._given = self._host.to(device), self._host_given.to(device)
        self._bits, self._flags = self._host.view(torch.int16).numpy().view("uint16"), self._host_given.numpy()

    def write(self, size: LoopSize, rows: Sequence[LoopRow]) -> None:
        """On the host; the loop before must have ended."""
        self._flags[: size.num_tokens] = False
        end = 0
        for row in rows:
            start, end = end, end + len(row.token_ids)
            if row.features is not None:
                self._bits[start:end], self._flags[start:end] = row.features, True

    def put(self, size: LoopSize, context_lens: torch.Tensor, block_tables: torch.Tensor) -> None:
        """Launches only: uploads what was written, for the step that feeds these tokens next."""
        count = size.num_tokens
        self._on_device[:count].copy_(self._host[:count], non_blocking=True)
        self._given[:count].copy_(self._host_given[:count], non_blocking=True)
        self._step.put_features(self._on_device[:count], self._given[:count], context_lens, block_tables)
