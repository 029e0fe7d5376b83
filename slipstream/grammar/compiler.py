"""Makes compiled grammars for one vocabulary. Knows tokens' bytes and the four languages; knows no sequence."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from slipstream.errors import InvalidRequest
from slipstream.grammar.forced_text import FirstBytes
from slipstream.grammar.matcher import Matcher
from slipstream.grammar.schema_check import check_schema
from slipstream.grammar.surrogates import SurrogateGuard
from slipstream.request import Grammar, GrammarKind
from slipstream.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    import xgrammar

# What JSON does not allow inside a string, in whole tokens: control characters, and UTF-8 of half a surrogate pair.
NEVER_IN_JSON = re.compile(rb"[\x00-\x1f]|\xed[\xa0-\xbf]")
NEVER_IN_TEXT = re.compile(rb"\xed[\xa0-\xbf]")
_PLACE_IN_SOURCE = re.compile(r"^\[[\d:]+\] \S+:\d+: ")


@dataclass(frozen=True, slots=True)
class CompiledGrammar:
    """What all sequences with one grammar share."""

    compiled: xgrammar.CompiledGrammar
    vocab_size: int
    end_token_ids: frozenset[int]
    guard: SurrogateGuard
    unusable: frozenset[int]  # tokens that no grammar of this kind can use
    firsts: FirstBytes

    @property
    def memory_size_bytes(self) -> int:
        return self.compiled.memory_size_bytes

    def matcher(self, more_end_token_ids: Collection[int] = ()) -> Matcher:
        """For one sequence, at the beginning of its output."""
        import xgrammar

        ends = sorted(self.end_token_ids.union(more_end_token_ids))
        matcher = xgrammar.GrammarMatcher(self.compiled, override_stop_tokens=ends)
        return Matcher(matcher, self.vocab_size, self.guard, self.unusable.difference(ends), self.firsts)


class GrammarCompiler:
    """Slow at its first call, which loads the library: that takes seconds and pulls in much. Any thread may call."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, end_token_ids: Sequence[int]) -> None:
        """`vocab_size`: rows of the logits. `end_token_ids`: may come where a grammar may end, and nowhere else."""
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._end_token_ids = list(end_token_ids)

    def compile(self, grammar: Grammar) -> CompiledGrammar:
        """Raises InvalidRequest naming the reason."""
        if not self._end_token_ids:
            raise InvalidRequest("grammar is given, but this model has no end token to end it with; leave it out")
        try:
            compiled = self._compile(grammar)
        except ModuleNotFoundError as error:
            raise InvalidRequest(
                f"grammar is given, but this verifier runs without {error.name}; leave it out, or install "
                "it there (pip install '.[grammar]' in the repository)"
            ) from error
        except RuntimeError as error:  # how the library says that it cannot read a grammar
            raise InvalidRequest(f"grammar: {_LANGUAGES[grammar.kind]} is refused: {_reason(error)}") from error
        unusable = frozenset(compiled.tokenizer_info.special_token_ids)
        ends = frozenset(self._end_token_ids)
        return CompiledGrammar(compiled, self._vocab_size, ends, self._guard, unusable, self._firsts)

    def _compile(self, grammar: Grammar) -> xgrammar.CompiledGrammar:
        match grammar.kind:
            case GrammarKind.JSON_SCHEMA:
                check_schema(_read_json(grammar.text))
                # Without a choice of whitespace there are forced runs of text, which become drafts.
                return self._json_compiler.compile_json_schema(grammar.text, any_whitespace=False)
            case GrammarKind.REGEX:
                return self._text_compiler.compile_regex(grammar.text)
            case GrammarKind.EBNF:
                return self._text_compiler.compile_grammar(grammar.text)
            case GrammarKind.CHOICE:
                return self._text_compiler.compile_grammar(choice_ebnf(_read_choices(grammar.text)))

    @cached_property
    def _token_bytes(self) -> list[bytes]:
        return [self._tokenizer.token_bytes(token_id) for token_id in range(self._vocab_size)]

    @cached_property
    def _guard(self) -> SurrogateGuard:
        return SurrogateGuard(self._token_bytes)

    @cached_property
    def _firsts(self) -> FirstBytes:
        return FirstBytes(self._token_bytes)

    @cached_property
    def _json_compiler(self) -> xgrammar.GrammarCompiler:
        return self._compiler_without(NEVER_IN_JSON)

    @cached_property
    def _text_compiler(self) -> xgrammar.GrammarCompiler:
        return self._compiler_without(NEVER_IN_TEXT)

    def _compiler_without(self, never: re.Pattern[bytes]) -> xgrammar.GrammarCompiler:
        import xgrammar  # not with the module: who serves no grammar shall not load it

        # An empty entry is a token that no grammar can use, as special ones are.
        vocabulary = [b"" if never.search(text) else text for text in self._token_bytes]
        info = xgrammar.TokenizerInfo(
            vocabulary,
            xgrammar.VocabType.RAW,
            vocab_size=self._vocab_size,
            stop_token_ids=self._end_token_ids,
        )
        return xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)


_LANGUAGES = {
    GrammarKind.JSON_SCHEMA: "the JSON schema",
    GrammarKind.REGEX: "the regular expression",
    GrammarKind.EBNF: "the EBNF",
    GrammarKind.CHOICE: "the list of choices",
}
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def choice_ebnf(choices: Sequence[str]) -> str:
    """An EBNF whose language is the given strings."""
    return "root ::= " + " | ".join(_literal(choice) for choice in choices)


def _literal(text: str) -> str:
    escaped = (_ESCAPES.get(char) or (char if char.isprintable() else f"\\U{ord(char):08x}") for char in text)
    return f'"{"".join(escaped)}"'


def _read_choices(text: str) -> list[str]:
    choices = _read_json(text)
    if not isinstance(choices, list) or not choices or not all(isinstance(one, str) and one for one in choices):
        raise InvalidRequest(f"grammar: choice is {text[:80]!r}; it must be a JSON array of strings that are not empty")
    return choices


def _read_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"grammar: {text[:80]!r} is not JSON: {error}") from error


def _reason(error: RuntimeError) -> str:
    """The library's message without the place in its own source and what it was called with."""
    lines = (line.strip() for line in str(error).splitlines())
    first = next((line for line in lines if line), type(error).__name__)
    return _PLACE_IN_SOURCE.sub("", first).rpartition("is false: ")[2]
