"""Judges whether a draft message can be what it claims to be. Knows no tree and no commits."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum

import numpy as np

from slipstream.exchange import LAW_TOTAL, Draft, DraftToken, LawKind


class Refusal(StrEnum):
    """Why a draft was dropped; the name under which it is counted."""

    UNKNOWN_SEQUENCE = "unknown_sequence"
    UNKNOWN_PROPOSER = "unknown_proposer"
    EMPTY = "empty"
    OUTSIDE_VOCABULARY = "outside_vocabulary"
    BROKEN_LAW = "broken_law"
    STALE = "stale"  # builds on what did not come true, or on what is not final yet
    CONTRADICTION = "contradiction"  # another token under the number of an earlier draw


def refusal(draft: Draft, vocab_size: int, proposers: Collection[str]) -> Refusal | None:
    """What is wrong with a draft in itself, if anything."""
    if draft.proposer not in proposers:
        return Refusal.UNKNOWN_PROPOSER
    if not draft.tokens:
        return Refusal.EMPTY
    if not all(0 <= token.token_id < vocab_size for token in draft.tokens):
        return Refusal.OUTSIDE_VOCABULARY
    if any((token.kind is LawKind.SPARSE) != (token.law is not None) for token in draft.tokens):
        return Refusal.BROKEN_LAW
    drawn = [token for token in draft.tokens if token.law is not None]
    return _law_refusal(drawn, vocab_size) if drawn else None


def _law_refusal(tokens: list[DraftToken], vocab_size: int) -> Refusal | None:
    """All laws of a path at once: each must be a distribution that its token can come from."""
    laws = [token.law for token in tokens if token.law is not None]
    sizes = np.array([law.token_ids.size for law in laws])
    if not sizes.all() or any(law.counts.size != law.token_ids.size for law in laws):
        return Refusal.BROKEN_LAW
    token_ids = np.concatenate([law.token_ids for law in laws]).astype(np.int64)
    if token_ids.min() < 0 or token_ids.max() >= vocab_size:
        return Refusal.OUTSIDE_VOCABULARY
    counts = np.concatenate([law.counts for law in laws]).astype(np.int64)
    starts = np.cumsum(sizes) - sizes
    owners = np.repeat(np.arange(sizes.size), sizes)
    is_drawn = token_ids == np.array([token.token_id for token in tokens])[owners]
    sound = (
        counts.min() > 0
        and (np.add.reduceat(counts, starts) == LAW_TOTAL).all()
        and np.logical_or.reduceat(is_drawn, starts).all()
        and np.unique(owners * vocab_size + token_ids).size == token_ids.size
    )
    return None if sound else Refusal.BROKEN_LAW
