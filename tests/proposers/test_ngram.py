"""The n-gram proposer against the plain rule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.proposers.ngram import MAX_CANDIDATES, NgramProposer


def propose_by_the_rule(tokens: list[int], num_tokens: int, min_match: int = 2, max_match: int = 5) -> tuple[int, ...]:
    """Longest suffix first, most recent occurrence first, then copy one token after the other."""
    for length in range(min(max_match, len(tokens) - 1), min_match - 1, -1):
        for end in range(len(tokens) - 1, length - 1, -1):
            if tokens[end - length : end] == tokens[-length:]:
                grown = list(tokens)
                for i in range(num_tokens):
                    grown.append(grown[end + i])
                return tuple(grown[len(tokens) :])
    return ()


def test_it_proposes_what_followed_the_last_occurrence() -> None:
    assert NgramProposer([1, 2, 3, 4, 9, 1, 2]).propose(3) == (3, 4, 9)


def test_a_longer_match_beats_a_more_recent_one() -> None:
    assert NgramProposer([5, 1, 2, 7, 0, 1, 2, 8, 5, 1, 2]).propose(1) == (7,)


def test_a_repetition_goes_on_for_as_long_as_asked() -> None:
    assert NgramProposer([7] * 4).propose(9) == (7,) * 9
    assert NgramProposer([1, 2, 3, 1, 2, 3, 1, 2]).propose(7) == (3, 1, 2, 3, 1, 2, 3)


def test_it_says_how_long_its_match_is() -> None:
    assert NgramProposer([1, 2, 3, 4, 9, 1, 2]).match_length == 2
    assert NgramProposer([1, 2, 3, 4, 9, 1, 2, 3, 4]).match_length == 4
    assert NgramProposer([1, 2, 3]).match_length == 0


@pytest.mark.parametrize("tokens", [[], [1], [1, 2], [1, 2, 3, 2]])
def test_without_a_match_it_proposes_nothing(tokens: list[int]) -> None:
    assert NgramProposer(tokens).propose(4) == ()


def test_impossible_bounds_are_refused() -> None:
    with pytest.raises(ValueError, match="min_match is 3, max_match 2"):
        NgramProposer(min_match=3, max_match=2)


@given(tokens=st.lists(st.integers(0, 2), max_size=MAX_CANDIDATES), cut=st.integers(0, MAX_CANDIDATES))
def test_it_follows_the_rule_however_the_tokens_arrived(tokens: list[int], cut: int) -> None:
    proposer = NgramProposer(tokens[:cut])
    proposer.extend(tokens[cut:])
    assert proposer.propose(6) == propose_by_the_rule(tokens, 6)
