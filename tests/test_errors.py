"""How a caller's values are quoted in the texts of errors."""

from __future__ import annotations

import pytest

from slipstream.errors import MAX_QUOTED, quoted


@pytest.mark.parametrize("value", ["short", 7, -1.5, ("a", "b"), None, "x" * MAX_QUOTED])
def test_what_is_short_is_quoted_whole(value: object) -> None:
    assert quoted(value) == repr(value)


def test_of_a_long_text_comes_its_beginning_and_its_length() -> None:
    assert quoted("ab" * 5000) == repr("ab" * (MAX_QUOTED // 2)) + "... (10000 characters)"


def test_of_anything_else_that_is_long_comes_its_beginning() -> None:
    told = quoted(tuple(range(10_000)))
    assert told.startswith("(0, 1, 2")
    assert len(told) == MAX_QUOTED + 3


def test_lists_that_grow_by_being_named_again_and_again_are_not_written_out() -> None:
    value: object = "x"
    for _ in range(12):
        value = [value] * 9  # 280 thousand million texts
    assert quoted(value).startswith("[[[")
    assert len(quoted({"name": value})) <= MAX_QUOTED + 3
