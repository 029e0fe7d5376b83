"""A step's token rules at fixed addresses, where a captured kernel finds them. Knows rows and entries; no requests."""

from __future__ import annotations

import torch

from slipstream.engine.late_buffer import LateBuffer
from slipstream.sampling.rule_rows import NUM_SPANS, RuleTable, RuleWords
from slipstream.sampling.token_rules import NUM_WORDS

MOST_ENTRIES = 1 << 16  # a step has room for; each is 12 bytes


class RuleBuffers:
    """Made for the largest step when rules are first needed: most requests have none."""

    def __init__(self, most_rows: int, device: torch.device, most_entries: int = MOST_ENTRIES) -> None:
        self._num_spans = most_rows * NUM_SPANS
        self._most_entries = most_entries
        self._buffer = LateBuffer(self._num_spans + most_entries * NUM_WORDS, device)

    def holds(self, words: RuleWords) -> bool:
        return len(words.entries) <= self._most_entries

    def table(self, num_rows: int) -> RuleTable:
        """Where a step of so many rows finds its rules on the device."""
        on_device = self._buffer.on_device
        return RuleTable(
            spans=on_device[: num_rows * NUM_SPANS].view(num_rows, NUM_SPANS),
            entries=on_device[self._num_spans :].view(self._most_entries, NUM_WORDS),
        )

    def upload(self, words: RuleWords) -> None:
        """Starts the copy, rows beyond the step's own without rules; the step before must have ended."""
        end = self._num_spans + words.entries.size
        numbers = self._buffer.host.numpy()
        numbers[: words.spans.size] = words.spans.ravel()
        numbers[words.spans.size : self._num_spans] = 0
        numbers[self._num_spans : end] = words.entries.ravel()
        self._buffer.upload(end)
