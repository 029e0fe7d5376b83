"""Two tokens that hold half a surrogate pair between them are told from those that hold a character."""

import numpy as np

from slipstream.grammar.surrogates import SurrogateGuard

TOKENS = [b"", b"\xed", b"x\xed", b"\xa0", b"\xbfz", b"\x9f", b"a"]


def test_only_the_second_half_after_the_opening_byte_is_forbidden() -> None:
    guard = SurrogateGuard(TOKENS)
    pairs = {(previous, token) for previous in range(7) for token in range(7) if guard.forbids(previous, token)}
    assert pairs == {(1, 3), (1, 4), (2, 3), (2, 4)}
    assert not guard.forbids(None, 3)


def test_a_row_loses_what_is_forbidden_and_nothing_else() -> None:
    guard = SurrogateGuard(TOKENS)
    row = np.full(1, -1, dtype=np.int32)
    guard.clear(6, row)
    assert row[0] == -1
    guard.clear(2, row)
    assert row[0] == ~(1 << 3 | 1 << 4)
