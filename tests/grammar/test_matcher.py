"""A matcher says what may come at each position of a draft, and is afterwards where it was."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from slipstream.grammar.compiler import GrammarCompiler
from slipstream.grammar.matcher import Matcher
from slipstream.request import Grammar, GrammarKind
from slipstream.text.tokenizer import Tokenizer
from tests.grammar.conftest import VOCAB
from tests.tiny_models import EOS_TOKEN_ID


@pytest.fixture
def ids(tokenizer: Tokenizer) -> dict[str, int]:
    return {char: tokenizer.encode(char, add_special_tokens=False)[0] for char in "abcdx12[]"}


def matcher_of(compiler: GrammarCompiler, regex: str, ends: Sequence[int] = ()) -> Matcher:
    return compiler.compile(Grammar(GrammarKind.REGEX, regex)).matcher(ends)


def allowed(matcher: Matcher, token_ids: Sequence[int]) -> list[set[int]]:
    bits = np.zeros((len(token_ids) + 1, -(-VOCAB // 32)), dtype=np.int32)
    matcher.fill(token_ids, bits)
    flags = np.unpackbits(bits.view(np.uint8), axis=1, bitorder="little")[:, :VOCAB]
    return [set(np.flatnonzero(row).tolist()) for row in flags]


def test_each_row_follows_from_the_tokens_before_it(compiler: GrammarCompiler, ids: dict[str, int]) -> None:
    matcher = matcher_of(compiler, "a(b|c)d?")
    a, b, c, d = (ids[char] for char in "abcd")
    for _ in range(2):  # the first look ahead left no trace
        assert allowed(matcher, [a, b, d]) == [{a}, {b, c}, {d, EOS_TOKEN_ID}, {EOS_TOKEN_ID}]
    assert matcher.advance([a]) == 1
    assert allowed(matcher, []) == [{b, c}]


def test_tokens_are_counted_up_to_the_first_illegal_one(compiler: GrammarCompiler, ids: dict[str, int]) -> None:
    matcher = matcher_of(compiler, "ab*")
    a, b, x = (ids[char] for char in "abx")
    assert [matcher.num_allowed(path) for path in ([x, a], [a, b, x, b], [a, b], [], [a, EOS_TOKEN_ID, b])] == [
        0,
        2,
        2,
        0,
        2,
    ]
    assert matcher.advance([a, x, b]) == 1
    assert matcher.num_allowed([b]) == 1


def test_after_the_end_nothing_is_forbidden_and_nothing_is_allowed(
    compiler: GrammarCompiler, ids: dict[str, int]
) -> None:
    matcher = matcher_of(compiler, "a")
    rows = allowed(matcher, [ids["a"], EOS_TOKEN_ID])
    assert rows[-1] == set(range(VOCAB))
    assert not matcher.is_over
    matcher.advance([ids["a"], EOS_TOKEN_ID])
    assert matcher.is_over
    assert matcher.num_allowed([ids["a"]]) == 0
    assert matcher.forced_text == ""


def test_forced_text_is_what_must_come(compiler: GrammarCompiler, ids: dict[str, int]) -> None:
    matcher = matcher_of(compiler, "a(bc|bd)x")
    assert matcher.forced_text == "ab"
    matcher.advance([ids["a"], ids["b"]])
    assert matcher.forced_text == ""
    matcher.advance([ids["c"]])
    assert matcher.forced_text == "x"


def test_other_tokens_may_end_the_output_where_it_may_end(compiler: GrammarCompiler, ids: dict[str, int]) -> None:
    matcher = matcher_of(compiler, "ab?", ends=[1])
    assert allowed(matcher, [ids["a"]])[1] == {ids["b"], 1, EOS_TOKEN_ID}


def test_halves_of_surrogate_pairs_never_come(compiler: GrammarCompiler, token_bytes: list[bytes]) -> None:
    opening, half, whole = (token_bytes.index(bytes([byte])) for byte in (0xED, 0xA0, 0x9F))
    matcher = matcher_of(compiler, ".*")
    rows = allowed(matcher, [opening])
    assert (half in rows[1], whole in rows[1]) == (False, True)
    assert [matcher.num_allowed([opening, second]) for second in (half, whole)] == [1, 2]
    matcher.advance([opening])
    assert matcher.num_allowed([half]) == 0
    assert half not in allowed(matcher, [])[0]
