"""A step's token rules at fixed addresses, where a captured kernel finds them. Knows rows and entries; no requests."""

from __future__ import annotations

import torch

from slipstream.sampling.rule_rows import NUM_SPANS, RuleTable, RuleWords
from slipstream.sampling.token_rules import NUM_WORDS

MOST_ENTRIES = 1 << 16  # a step has room for; each is 12 bytes


class RuleBuffers:
    """Made for the largest step when rules are first needed: most requests have none."""

    def __init__(self, most_rows: int, device: torch.device, most_entries: int = MOST_ENTRIES) -> None:
        self._num_spans = most_rows * NUM_SPANS
        self._most_entries = most_entries
        self._device = device
        self._buffers: tuple[torch.Tensor, torch.Tensor] | None = None  # on the host, on the device

    def holds(self, words: RuleWords) -> bool:
        return len(words.entries) <= self._most_entries

    def table(self, num_rows: int) -> RuleTable:
        """Where a step of so many rows finds its rules on the device."""
        _, on_device = self._made()
        return RuleTable(
            spans=on_device[: num_rows * NUM_SPANS].view(num_rows, NUM_SPANS),
            entries=on_device[self._num_spans :].view(self._most_entries, NUM_WORDS),
        )

    def upload(self, words: RuleWords) -> None:
        """Starts the copy, rows beyond the step's own without rules; the step before must have ended."""
        host, on_device = self._made()
        end = self._num_spans + words.entries.size
        numbers = host.numpy()
        numbers[: words.spans.size] = words.spans.ravel()
        numbers[words.spans.size : self._num_spans] = 0
        numbers[self._num_spans : end] = words.entries.ravel()
        on_device[:end].copy_(host[:end], non_blocking=True)

    def _made(self) -> tuple[torch.Tensor, torch.Tensor]:
        if self._buffers is None:
            size = self._num_spans + self._most_entries * NUM_WORDS
            host = torch.zeros(size, dtype=torch.int32, pin_memory=self._device.type == "cuda")
            self._buffers = host, torch.zeros(size, dtype=torch.int32, device=self._device)
        return self._buffers
