"""The automaton against a search of the whole text."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.proposers.suffix_automaton import BREAK, SuffixAutomaton, SuffixCursor

TEXTS = st.lists(st.integers(0, 2), max_size=60)


def longest_suffix_by_search(text: list[int], tail: list[int], most: int, *, before_end: bool = False) -> int:
    """How many of the last tokens of `tail` stand anywhere in `text`; `before_end`: not at its very end."""
    for length in range(min(most, len(tail)), 0, -1):
        suffix = tail[len(tail) - length :]
        last_start = len(text) - length - (1 if before_end else 0)
        if any(text[start : start + length] == suffix for start in range(last_start + 1)):
            return length
    return 0


def automaton_of(text: list[int]) -> SuffixAutomaton:
    automaton = SuffixAutomaton()
    for token_id in text:
        automaton.extend(token_id)
    return automaton


@settings(deadline=None)
@given(TEXTS)
def test_it_knows_the_longest_suffix_that_stood_before_and_where(text: list[int]) -> None:
    automaton = SuffixAutomaton()
    for i, token_id in enumerate(text):
        automaton.extend(token_id)
        sofar = text[: i + 1]
        length, end = automaton.repeated
        assert length == longest_suffix_by_search(sofar, sofar, len(sofar), before_end=True)
        assert length == 0 or (end < len(sofar) and sofar[end - length : end] == sofar[-length:])


@settings(deadline=None)
@given(TEXTS, TEXTS, st.integers(1, 6))
def test_a_cursor_finds_the_longest_suffix_of_another_text(text: list[int], other: list[int], most: int) -> None:
    automaton = automaton_of(text)
    cursor = SuffixCursor(automaton, [], most)
    for i in range(len(other)):
        tail = other[: i + 1]
        cursor.advance(tail)
        length, end = cursor.match(tail)
        assert length == longest_suffix_by_search(text, tail, most)
        assert length == 0 or text[end - length : end] == tail[-length:]


@settings(deadline=None)
@given(TEXTS, TEXTS, TEXTS)
def test_a_cursor_sees_what_its_text_gains(text: list[int], gained: list[int], other: list[int]) -> None:
    automaton = automaton_of(text)
    cursor = SuffixCursor(automaton, other, 5)
    for i, token_id in enumerate(gained):
        automaton.extend(token_id)
        tail = other + gained[:i]
        assert cursor.match(tail).length == longest_suffix_by_search(text + gained[: i + 1], tail, 5)
        cursor.advance([*tail, token_id])


@settings(deadline=None)
@given(TEXTS)
def test_it_has_at_most_two_states_a_token(text: list[int]) -> None:
    assert len(automaton_of(text)._length) <= 2 * len(text) + 1


def test_what_follows_ends_at_a_break() -> None:
    automaton = automaton_of([1, 2, 3, BREAK, 4, 5])
    assert automaton.following(1, 4) == (2, 3)
    assert automaton.following(4, 9) == (4, 5)
    assert automaton.following(6, 3) == ()


def test_the_most_recent_place_of_a_repetition_is_taken() -> None:
    assert automaton_of([1, 2, 7, 1, 2, 8, 1, 2]).repeated == (2, 5)
