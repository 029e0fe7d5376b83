"""Stop strings in text that comes in pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from slipstream.text.stop_strings import Piece, StopMatcher


def run(matcher: StopMatcher, pieces: list[str]) -> tuple[str, str, int]:
    """Text shown, stop string, index of the piece that completed it (or the number of pieces)."""
    text = ""
    for index, piece in enumerate(pieces):
        result = matcher.feed(piece)
        text += result.text
        if result.stop_string:
            return text, result.stop_string, index
    return text + matcher.finish(), "", len(pieces)


def test_without_stop_strings_text_passes_at_once() -> None:
    assert StopMatcher().feed("anything") == Piece("anything")


def test_a_stop_string_across_pieces_ends_at_the_piece_that_completes_it_and_is_cut() -> None:
    assert run(StopMatcher(["END"]), ["some E", "N", "D more", "never"]) == ("some ", "END", 2)


def test_include_stop_keeps_the_stop_string_and_cuts_behind_it() -> None:
    assert run(StopMatcher(["END"], include_stop=True), ["some E", "ND more"]) == ("some END", "END", 1)


def test_a_possible_beginning_is_held_and_given_out_when_it_turns_out_to_be_none() -> None:
    matcher = StopMatcher(["\n\nUser:"])
    assert matcher.feed("Hi\n").text == "Hi"
    assert matcher.feed("\nUs").text == ""
    assert matcher.feed("age").text == "\n\nUsage"


def test_held_text_is_not_lost_at_the_end() -> None:
    matcher = StopMatcher(["stop"])
    assert matcher.feed("a sto") == Piece("a ")
    assert matcher.finish() == "sto"


def test_a_stop_string_that_overlaps_its_own_beginning_is_found() -> None:
    assert run(StopMatcher(["aab"]), ["a", "a", "a", "b"]) == ("a", "aab", 3)


def test_the_stop_string_that_is_complete_first_wins_then_the_longest() -> None:
    assert run(StopMatcher(["abc", "b"]), ["abc"]) == ("a", "b", 0)
    assert run(StopMatcher(["b", "ab"]), ["ab"]) == ("", "ab", 0)


def test_after_a_stop_nothing_more_comes() -> None:
    matcher = StopMatcher(["x"])
    assert matcher.feed("ax") == Piece("a", "x")
    assert matcher.stopped
    assert matcher.feed("bx") == Piece("")
    assert matcher.finish() == ""


@given(
    stops=st.lists(st.text("ab", min_size=1, max_size=4), max_size=3),
    pieces=st.lists(st.text("abc", max_size=4), max_size=8),
)
def test_cutting_the_text_differently_changes_neither_text_nor_stop(stops: list[str], pieces: list[str]) -> None:
    by_piece = run(StopMatcher(stops), pieces)
    by_character = run(StopMatcher(stops), list("".join(pieces)))
    assert by_piece[:2] == by_character[:2]
