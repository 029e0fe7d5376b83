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

    A row that may not go on keeps its logits: whoever gets there asks `TokenRules.allows` whether its token may stand.
    """
    if not any(row.rules for row in rows):
        return None
    packer = _Packer(vocab_size)
    spans = np.array([packer.pack(row) for row in rows], dtype=np.int32)
    shared, own = packer.shared_words(), _words(packer.own)
    spans[:, Span.OWN_START :] += len(shared)
    return RuleWords(spans, np.concatenate((shared, own)))


def to_device(words: RuleWords, device: torch.device) -> RuleTable:
    parts = (words.spans, words.entries)
    return RuleTable(*(torch.from_numpy(part).to(device, non_blocking=True) for part in parts))


class _Packer:
    """Takes rows one by one: their own entries in one list, those shared by a sequence's rows once."""

    def __init__(self, vocab_size: int) -> None:
        self.own: list[Entry] = []
        self._vocab_size = vocab_size
        self._shared: list[Words] = []
        self._num_shared = 0
        self._spans: dict[int, tuple[int, int]] = {}  # of shared entries, by the rules' identity

    def pack(self, row: RowContext) -> tuple[int, int, int, int]:
        """The row's words, its own entries counted from where they begin."""
        rules, start = row.rules, len(self.own)
        if rules is None or not rules.allows_any(row.drafted, self._vocab_size):
            return 0, 0, start, start
        self.own += [entry for entry in rules.row_entries(row.drafted) if entry.token_id < self._vocab_size]
        return *self._share(rules), start, len(self.own)

    def shared_words(self) -> Words:
        return np.concatenate([_words([]), *self._shared])

    def _share(self, rules: TokenRules) -> tuple[int, int]:
        key = id(rules)
        if key not in self._spans:
            kept, start = rules.shared[rules.shared[:, 0] < self._vocab_size], self._num_shared
            self._shared.append(kept)
            self._num_shared += len(kept)
            self._spans[key] = start, self._num_shared
        return self._spans[key]


def _words(entries: Sequence[Entry]) -> Words:
    words = np.zeros((len(entries), NUM_WORDS), dtype=np.int32)
    if entries:
        words[:, 0] = [entry.token_id for entry in entries]
        words.view(np.float32)[:, 1:] = [(entry.scale, entry.addend) for entry in entries]
    return words
