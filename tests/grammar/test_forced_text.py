"""Forced text is found as far as it is of use, however far it goes on, and is where one looked last time."""

from __future__ import annotations

import pytest

from slipstream.grammar.compiler import GrammarCompiler
from slipstream.grammar.forced_text import MAX_BYTES
from slipstream.request import Grammar, GrammarKind
from slipstream.text.tokenizer import Tokenizer

EBNF, REGEX, SCHEMA = GrammarKind.EBNF, GrammarKind.REGEX, GrammarKind.JSON_SCHEMA
ENDLESS = {
    "a rule that comes to no end": Grammar(EBNF, 'root ::= "a" root'),
    "after a choice": Grammar(EBNF, 'root ::= ("b" | "c") more\nmore ::= "a" more'),
    "an object that holds itself": Grammar(
        SCHEMA, '{"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}'
    ),
    "a million times": Grammar(REGEX, "a{1000000}"),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("grammar", ENDLESS.values(), ids=ENDLESS)
def test_what_never_ends_is_looked_at_for_a_bounded_way(
    compiler: GrammarCompiler, tokenizer: Tokenizer, grammar: Grammar
) -> None:
    matcher = compiler.compile(grammar).matcher()
    if not matcher.forced_text:
        assert matcher.advance(tokenizer.encode("b")) == 1
    for _ in range(3):
        forced = matcher.forced_text
        assert len(forced) == MAX_BYTES
        assert matcher.advance(tokenizer.encode(forced[:5])) == 5


def test_it_is_the_librarys_own_search_as_far_as_both_go(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    text = '{"name": "grün é"} ' * 5
    compiled = compiler.compile(Grammar(GrammarKind.CHOICE, f'["{text.replace(chr(34), chr(92) + chr(34))}x", "b"]'))
    matcher, library = compiled.matcher(), compiled.matcher()._matcher
    assert matcher.forced_text == library.find_jump_forward_string() == ""
    for token_id in tokenizer.encode(text):
        assert matcher.advance([token_id]) == 1
        assert library.accept_token(token_id)
        expected = library.find_jump_forward_string()
        forced = matcher.forced_text
        assert expected.startswith(forced)
        assert len(forced.encode()) >= min(len(expected.encode()), MAX_BYTES - 3)
