"""Recent text stays within its bound and texts stay apart."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.proposers.suffix_automaton import BREAK
from slipstream.proposers.suffix_text import SuffixText


@settings(deadline=None)
@given(st.integers(2, 40), st.lists(st.lists(st.integers(0, 9), max_size=60), max_size=12))
def test_it_never_holds_more_than_it_may(max_tokens: int, texts: list[list[int]]) -> None:
    recent = SuffixText(max_tokens)
    for text in texts:
        recent.add(text)
        assert len(recent) <= max_tokens


def test_the_newest_text_is_kept_and_the_oldest_forgotten() -> None:
    recent = SuffixText(20)
    for value in range(10):
        recent.add([value] * 4)
    held = {token for automaton in recent.automata for token in automaton.tokens}
    assert held == {BREAK, 9, 8, 7, 6}


def test_of_a_very_long_text_the_end_is_kept() -> None:
    recent = SuffixText(10)
    recent.add(list(range(100)))
    assert recent.newer.tokens == [96, 97, 98, 99, BREAK]


def test_a_bound_that_holds_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="max_tokens is 1"):
        SuffixText(1)
