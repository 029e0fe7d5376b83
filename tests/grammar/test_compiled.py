"""Compiled grammars are made once, kept while there is room, and never hold up who asks for them."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass

import pytest

from slipstream.errors import Exhausted, InvalidRequest
from slipstream.grammar.compiled import MAX_SLOW, NUM_AT_ONCE, CompiledGrammars
from slipstream.request import Grammar, GrammarKind

PATIENCE = 30


@dataclass
class Made:
    text: str
    memory_size_bytes: int = 10


def regex(text: str) -> Grammar:
    return Grammar(GrammarKind.REGEX, text)


class Compiler:
    """Compiles what is let through."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.gate = threading.Event()

    def __call__(self, grammar: Grammar) -> Made:
        self.asked.append(grammar.text)
        assert self.gate.wait(PATIENCE)
        if grammar.text == "bad":
            raise InvalidRequest("bad")
        return Made(grammar.text)


@pytest.fixture
def compiler() -> Compiler:
    return Compiler()


def texts(*futures: Future[Made]) -> list[str]:
    return [future.result(PATIENCE).text for future in futures]


def test_whoever_asks_while_it_compiles_waits_for_the_same_and_later_ones_get_it_at_once(compiler: Compiler) -> None:
    grammars = CompiledGrammars(compiler)
    first, second, other = (grammars.get(regex(text)) for text in ("a", "a", "b"))
    assert not first.done()
    compiler.gate.set()
    assert texts(first, second, other) == ["a", "a", "b"]
    assert grammars.get(regex("a")).done()
    assert sorted(compiler.asked) == ["a", "b"]


def test_the_least_recently_asked_for_goes_first(compiler: Compiler) -> None:
    compiler.gate.set()
    grammars = CompiledGrammars(compiler, max_bytes=25)
    for text in ("a", "b", "a", "c"):
        assert texts(grammars.get(regex(text))) == [text]
    assert len(grammars) == 2
    assert [grammars.get(regex(text)).done() for text in ("a", "c")] == [True, True]
    assert compiler.asked == ["a", "b", "c"]


def test_one_that_cannot_be_compiled_is_not_kept(compiler: Compiler) -> None:
    compiler.gate.set()
    grammars = CompiledGrammars(compiler)
    with pytest.raises(InvalidRequest):
        grammars.get(regex("bad")).result(PATIENCE)
    assert len(grammars) == 0


def test_more_than_may_be_pending_are_refused_until_one_ends(compiler: Compiler) -> None:
    grammars = CompiledGrammars(compiler, max_pending=2)
    pending = [grammars.get(regex(text)) for text in ("a", "b")]
    with pytest.raises(Exhausted, match="2 grammars are being compiled, the most allowed"):
        grammars.get(regex("c"))
    compiler.gate.set()
    assert texts(*pending) == ["a", "b"]
    assert texts(grammars.get(regex("c"))) == ["c"]


class SlowAndQuick(Compiler):
    """What begins with "slow" waits for the gate; anything else is compiled at once."""

    def __call__(self, grammar: Grammar) -> Made:
        return super().__call__(grammar) if grammar.text.startswith("slow") else Made(grammar.text)


def test_those_that_take_long_give_their_places_to_the_others_but_not_all_of_them() -> None:
    compiler = SlowAndQuick()
    grammars = CompiledGrammars(compiler, slow_seconds=0.05)
    slow = [grammars.get(regex(f"slow {i}")) for i in range(MAX_SLOW)]
    assert texts(grammars.get(regex("quick"))) == ["quick"]
    more = [grammars.get(regex(f"slow and more {i}")) for i in range(NUM_AT_ONCE)]
    late = grammars.get(regex("late"))
    with pytest.raises(TimeoutError):
        late.result(0.5)
    compiler.gate.set()
    assert texts(late, *slow, *more)[0] == "late"
    assert texts(*(grammars.get(regex(f"again {i}")) for i in range(4))) == [f"again {i}" for i in range(4)]


def test_one_that_waited_too_long_for_a_place_is_not_compiled_for_nobody() -> None:
    compiler = SlowAndQuick()
    grammars = CompiledGrammars(compiler, waiting_seconds=0.1)
    slow = [grammars.get(regex(f"slow {i}")) for i in range(NUM_AT_ONCE)]
    waiting = grammars.get(regex("waiting"))
    time.sleep(0.2)
    compiler.gate.set()
    with pytest.raises(Exhausted, match="took too long"):
        waiting.result(PATIENCE)
    assert len(texts(*slow)) == NUM_AT_ONCE
    assert texts(grammars.get(regex("waiting"))) == ["waiting"]
