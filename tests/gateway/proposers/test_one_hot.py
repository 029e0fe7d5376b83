"""Paths without probabilities."""

from __future__ import annotations

from gateway.proposers.one_hot import one_hot, remainder
from slipstream.exchange import LawKind


def test_every_token_is_simply_named() -> None:
    assert [(token.token_id, token.kind, token.law) for token in one_hot((4, 5))] == [
        (4, LawKind.ONE_HOT, None),
        (5, LawKind.ONE_HOT, None),
    ]


def test_what_came_true_is_taken_off_and_what_did_not_ends_the_path() -> None:
    assert remainder((1, 2, 3), (1, 2)) == (3,)
    assert remainder((1, 2, 3), (1, 9)) == ()
    assert remainder((1, 2), (1, 2, 3)) == ()
    assert remainder((1, 2), ()) == (1, 2)
