"""Drafts without probabilities: tokens that are simply named, and checked by match. Knows paths; not who made them."""

from __future__ import annotations

from slipstream.exchange import DraftToken, LawKind


def one_hot(path: tuple[int, ...]) -> tuple[DraftToken, ...]:
    return tuple(DraftToken(token_id, LawKind.ONE_HOT) for token_id in path)


def remainder(path: tuple[int, ...], committed: tuple[int, ...]) -> tuple[int, ...]:
    """What of the path is left after these tokens, nothing if they went another way."""
    return path[len(committed) :] if path[: len(committed)] == committed else ()
