"""Drafts by the longest suffix, against a search of everything committed."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.proposers.suffix_index import MIN_MATCH, SuffixIndex
from slipstream.proposers.suffix_text import SuffixText

TOKENS = st.lists(st.integers(0, 2), max_size=40)


def longest_with_something_after(texts: list[list[int]], tail: list[int]) -> int:
    """By search: how many of the last tokens stand in a text with a token after them."""
    for length in range(len(tail), MIN_MATCH - 1, -1):
        for text in texts:
            if any(text[i : i + length] == tail[len(tail) - length :] for i in range(len(text) - length)):
                return length
    return 0


def continues(text: list[int], tail: list[int], length: int, path: tuple[int, ...]) -> bool:
    suffix = tail[len(tail) - length :]
    return any(
        text[i : i + length] == suffix and tuple(text[i + length : i + length + len(path)]) == path
        for i in range(len(text) - length)
    )


@settings(deadline=None)
@given(TOKENS, st.lists(TOKENS, max_size=3))
def test_it_finds_the_longest_match_in_its_own_and_in_shared_text(own: list[int], others: list[list[int]]) -> None:
    shared = SuffixText(1000)
    for text in others:
        shared.add(text)
    index = SuffixIndex(shared)
    for i, token_id in enumerate(own):
        index.extend([token_id])
        sofar = own[: i + 1]
        longest = longest_with_something_after([sofar, *others], sofar)
        # A shared match that stood only at the end of its text is passed over for a shorter one of another source.
        assert index.match_length <= longest
        assert index.match_length >= longest_with_something_after([sofar], sofar)
        path = index.propose(1)
        assert bool(path) == (index.match_length > 0)
        assert not path or any(continues(text, sofar, index.match_length, path) for text in [sofar, *others])


@settings(deadline=None)
@given(TOKENS, TOKENS)
def test_reading_at_once_and_one_by_one_gives_the_same(own: list[int], other: list[int]) -> None:
    proposals = []
    for pieces in ([own], [[token] for token in own]):
        shared = SuffixText(1000)
        shared.add(other)
        index = SuffixIndex(shared)
        for piece in pieces:
            index.extend(piece)
        proposals.append((index.match_length, index.propose(4), len(index)))
    assert proposals[0] == proposals[1]


def test_a_repetition_goes_on_for_as_long_as_asked() -> None:
    index = SuffixIndex()
    index.extend([1, 2, 3, 1, 2, 3, 1, 2])
    assert index.propose(7) == (3, 1, 2, 3, 1, 2, 3)


def test_what_others_said_is_proposed_up_to_its_end() -> None:
    shared = SuffixText(100)
    shared.add([5, 6, 7, 8])
    shared.add([9, 9])
    index = SuffixIndex(shared)
    index.extend([1, 5, 6])
    assert (index.match_length, index.propose(9)) == (2, (7, 8))


def test_what_others_say_later_is_found_too() -> None:
    shared = SuffixText(100)
    index = SuffixIndex(shared)
    index.extend([5, 6])
    assert index.propose(2) == ()
    shared.add([5, 6, 7])
    assert index.propose(2) == (7,)


def test_of_equal_matches_its_own_goes_first_and_a_longer_one_before_it() -> None:
    shared = SuffixText(100)
    shared.add([1, 2, 99])
    index = SuffixIndex(shared)
    index.extend([1, 2, 7, 1, 2])
    assert index.propose(1) == (7,)
    shared.add([7, 1, 2, 42])
    assert index.propose(1) == (42,)


def test_a_sequence_beyond_its_bound_still_finds_what_stood_before_the_last_turnover() -> None:
    index = SuffixIndex(own_tokens=20)
    index.extend([1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    index.extend([50, 51, 3, 4])
    assert index.propose(2) == (5, 6)
    index.extend(range(100, 140))
    assert index.match_length == 0
    assert len(index) == 54
