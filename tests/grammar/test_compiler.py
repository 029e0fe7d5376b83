"""Grammars of all four kinds say what they should; what cannot be read is refused with its reason."""

from __future__ import annotations

import json
import sys

import pytest

from slipstream.errors import InvalidRequest
from slipstream.grammar.compiler import GrammarCompiler
from slipstream.request import Grammar, GrammarKind
from slipstream.text.tokenizer import Tokenizer
from tests.tiny_models import EOS_TOKEN_ID

JSON_SCHEMA, REGEX, EBNF, CHOICE = GrammarKind
ACCEPTED = [
    (JSON_SCHEMA, '{"type": "array", "items": {"type": "integer"}}', "[1, -20]"),
    (REGEX, "[a-c]+x{2}", "abcxx"),
    (EBNF, 'root ::= "<" word ">"\nword ::= [a-z]+', "<word>"),
    (CHOICE, '["yes", "no"]', "no"),
    (CHOICE, json.dumps(['a "b" \\ c', "*"]), 'a "b" \\ c'),
    (CHOICE, json.dumps(["größe 😀\n\x01\u2028"]), "größe 😀\n\x01\u2028"),
]


def tokens_of(tokenizer: Tokenizer, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False))


@pytest.mark.parametrize("kind, text, output", ACCEPTED)
def test_a_whole_output_is_accepted_and_may_end_there_and_not_before(
    kind: GrammarKind, text: str, output: str, compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    matcher = compiler.compile(Grammar(kind, text)).matcher()
    tokens = tokens_of(tokenizer, output)
    assert matcher.num_allowed([*tokens, EOS_TOKEN_ID]) == len(tokens) + 1
    assert matcher.num_allowed([*tokens[:-1], EOS_TOKEN_ID]) == len(tokens) - 1


@pytest.mark.parametrize(
    "kind, text, reason",
    [
        (JSON_SCHEMA, '{"type": ', "is not JSON"),
        (JSON_SCHEMA, '{"type": "array", "uniqueItems": true}', "'uniqueItems'"),
        (JSON_SCHEMA, '{"$ref": "#/$defs/none"}', "which is no schema inside this one"),
        (REGEX, "a(", "the regular expression is refused: Regex parsing error at position 3: The parenthesis is not"),
        (REGEX, "a(?=b)", "Lookahead is not supported"),
        (EBNF, "root ::= nothing", 'the EBNF is refused: .*Rule "nothing" is not defined'),
        (CHOICE, '{"a": 1}', "must be a JSON array of strings"),
        (CHOICE, '["a", ""]', "must be a JSON array of strings"),
        (CHOICE, "[]", "must be a JSON array of strings"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_reason(
    kind: GrammarKind, text: str, reason: str, compiler: GrammarCompiler
) -> None:
    with pytest.raises(InvalidRequest, match=f"^grammar: .*{reason}") as refused:
        compiler.compile(Grammar(kind, text))
    assert "/project/" not in str(refused.value)


def test_without_the_library_the_error_says_what_to_do(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xgrammar", None)
    with pytest.raises(InvalidRequest, match=r"runs without xgrammar; leave it out, or install it there"):
        GrammarCompiler(tokenizer, 260, [EOS_TOKEN_ID]).compile(Grammar(REGEX, "a"))


def test_a_model_without_an_end_token_serves_no_grammar(tokenizer: Tokenizer) -> None:
    with pytest.raises(InvalidRequest, match="this model has no end token"):
        GrammarCompiler(tokenizer, 260, []).compile(Grammar(REGEX, "a"))
