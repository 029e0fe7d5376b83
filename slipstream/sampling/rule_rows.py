"""Packs the token rules of a batch's rows into two arrays, so that they can be applied at once. Knows no logits.

A row has entries that it shares with the other rows of its sequence, and entries of its own, which win. Rows without
rules have none, and a batch without such rows has no table. Which tokens are allowed at all is in token_masks.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import torch

from slipstream.sampling.check import SequenceCheck
from slipstream.sampling.token_rules import NUM_WORDS, Entry, TokenRules, Words


class Span(IntEnum):
    """Columns of a row: where its entries lie."""

    SHARED_START = 0
    SHARED_END = 1
    OWN_START = 2
    OWN_END = 3


NUM_SPANS = len(Span)


@dataclass(frozen=True, slots=True)
class RowContext:
    """Where one row stands."""

    rules: TokenRules | None
    drafted: Sequence[int]  # after the committed tokens, before the row


@dataclass(frozen=True, slots=True)
class RuleWords:
    spans: Words  # [num_rows, NUM_SPANS]
    entries: Words  # [num_entries, NUM_WORDS]


@dataclass(frozen=True, slots=True)
class RuleTable:
    """The same where the logits are; int32."""

    spans: torch.Tensor  # [num_rows, NUM_SPANS]
    entries: torch.Tensor  # [num_entries, NUM_WORDS]


def contexts_of(checks: Sequence[SequenceCheck]) -> list[RowContext]:
    """One per row of the checks, as check_rows.py lays them out; none if no check has rules."""
    if all(check.rules is None for check in checks):
        return []
    return [
        RowContext(check.rules, [token.token_id for token in check.draft[:offset]] if check.rules else ())
        for check in checks
        for offset in range(len(check.draft) + 1)
    ]


def pack_rules(rows: Sequence[RowContext], vocab_size: int) -> RuleWords | None:
    """None if no row has rules. Entries outside the vocabulary are left out.

    A row that may not go on keeps its logits: whoever gets there must ask `TokenRules.allows_any` before trusting it.
    """
    if not any(row.rules for row in rows):
        return None
    packer = _Packer(vocab_size)
    spans = np.zeros((len(rows), NUM_SPANS), dtype=np.int32)
    for words, row in zip(spans, rows, strict=True):
        if row.rules and row.rules.allows_any(row.drafted, vocab_size):
            packer.pack(words, row.rules, row.drafted)
    return RuleWords(spans, packer.entries())


def to_device(words: RuleWords, device: torch.device) -> RuleTable:
    parts = (words.spans, words.entries)
    return RuleTable(*(torch.from_numpy(part).to(device, non_blocking=True) for part in parts))


class _Packer:
    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._parts: list[Words] = []
        self._num_entries = 0
        self._shared: dict[int, tuple[int, int]] = {}  # by the rules' identity

    def pack(self, words: Words, rules: TokenRules, drafted: Sequence[int]) -> None:
        key = id(rules)
        if key not in self._shared:
            self._shared[key] = self._append(rules.shared)
        words[[Span.SHARED_START, Span.SHARED_END]] = self._shared[key]
        words[[Span.OWN_START, Span.OWN_END]] = self._append(_words(rules.row_entries(drafted)))

    def entries(self) -> Words:
        return np.concatenate(self._parts) if self._parts else np.zeros((0, NUM_WORDS), np.int32)

    def _append(self, words: Words) -> tuple[int, int]:
        kept, start = words[words[:, 0] < self._vocab_size], self._num_entries
        self._parts.append(kept)
        self._num_entries += len(kept)
        return start, self._num_entries


def _words(entries: Sequence[Entry]) -> Words:
    words = np.zeros((len(entries), NUM_WORDS), dtype=np.int32)
    if entries:
        words[:, 0] = [entry.token_id for entry in entries]
        words.view(np.float32)[:, 1:] = [(entry.scale, entry.addend) for entry in entries]
    return words
