"""A sequence waits for its grammar alone: nobody else does, and what comes for it meanwhile counts."""

import threading

import pytest

from slipstream.errors import DeadlineExceeded, Exhausted, InvalidRequest
from slipstream.exchange import Update
from slipstream.grammar.compiled import MAX_PENDING
from slipstream.grammar.compiler import GrammarCompiler
from tests.scripted_runner import random_law
from tests.tiny_models import EOS_TOKEN_ID
from tests.verifier_svc.guided import regex
from tests.verifier_svc.harness import Harness
from verifier_svc.messages import Close, GrammarCompiled, StreamEnded
from verifier_svc.openings import COMPILE_SECONDS

PROMPT = (3, 4, 1)
PATIENCE = 20


@pytest.fixture
def gate(monkeypatch):
    """Compilations wait for it."""
    gate, compile_grammar = threading.Event(), GrammarCompiler.compile

    def compile_later(self, grammar):
        assert gate.wait(PATIENCE)
        return compile_grammar(self, grammar)

    monkeypatch.setattr(GrammarCompiler, "compile", compile_later)
    yield gate
    gate.set()


class Posted:
    """Where compilations are told of."""

    def __init__(self):
        self.events = []
        self._more = threading.Semaphore(0)

    def __call__(self, event):
        self.events.append(event)
        self._more.release()

    def wait_for(self, count):
        for _ in range(count):
            assert self._more.acquire(timeout=PATIENCE)
        return self.events


@pytest.fixture
def posted():
    return Posted()


@pytest.fixture
def harness(tokenizer, gate, posted):
    harness = Harness(random_law(24), tokenizer, eos_token_ids=(EOS_TOKEN_ID,))
    harness.verifier.compile_apart(posted)
    return harness


def open_guided(harness, text, sequence_id=1, **options):
    harness.open(PROMPT, sequence_id, sampling={"grammar": regex(text)}, **options)


def finish_compiled(harness, gate, posted, count=1):
    gate.set()
    for stream, message in posted.wait_for(count):
        harness.post(message, stream=stream)
    harness.finish()


def test_others_go_on_while_a_grammar_compiles_and_it_opens_when_that_is_told(harness, gate, posted):
    open_guided(harness, "AB")
    harness.open(PROMPT, 2, sampling={"max_tokens": 3})
    while not harness.commits[1, 2] or len(harness.output(2)) < 3:
        harness.step()
    assert (harness.output(1), len(harness.verifier.sequences)) == ([], 1)
    finish_compiled(harness, gate, posted)
    assert posted.events == [(1, GrammarCompiled(1))]
    assert harness.output(1) == [3, 4, EOS_TOKEN_ID]


def test_one_that_is_kept_opens_at_once(harness, gate, posted):
    open_guided(harness, "AB")
    finish_compiled(harness, gate, posted)
    open_guided(harness, "AB", 2)
    harness.finish()
    assert harness.output(2) == [3, 4, EOS_TOKEN_ID]
    assert len(posted.events) == 1


@pytest.mark.parametrize("message", [Close(1), StreamEnded()])
def test_one_that_was_closed_meanwhile_never_opens(harness, gate, posted, message):
    open_guided(harness, "AB")
    harness.post(message)
    assert len(harness.verifier.sequences) == 0
    finish_compiled(harness, gate, posted)
    assert harness.output(1) == []
    assert not harness.failures


def test_an_update_meanwhile_counts(tokenizer, gate, posted):
    harness = Harness(random_law(24), tokenizer, eos_token_ids=(EOS_TOKEN_ID,), local_proposers=("grammar",))
    harness.verifier.compile_apart(posted)
    open_guided(harness, "ABCDEFGH", num_draft_tokens=0)
    harness.post(Update(1, num_draft_tokens=3, fan_out=0, max_wait_us=0))
    finish_compiled(harness, gate, posted)
    assert harness.commits[1, 1][0].num_draft_tokens == 3


def test_the_same_id_again_meanwhile_ends_it(harness, gate, posted):
    open_guided(harness, "AB")
    open_guided(harness, "AC")
    finish_compiled(harness, gate, posted)
    assert "sequence 1 is open already" in str(harness.error(1))
    assert harness.output(1) == []


@pytest.mark.parametrize(
    "deadline_ms, error, text",
    [
        (50, DeadlineExceeded, "50 ms passed while the grammar compiled"),
        (0, InvalidRequest, "more than 30 s to compile"),
    ],
)
def test_what_compiles_for_too_long_ends_unserved(harness, gate, posted, deadline_ms, error, text):
    open_guided(harness, "AB", deadline_ms=deadline_ms)
    harness.finish()
    assert isinstance(harness.error(1), error)
    assert text in str(harness.error(1))
    assert harness.now <= 101 + COMPILE_SECONDS


def test_a_refused_grammar_and_too_many_at_once_end_their_requests_alone(harness, gate, posted):
    open_guided(harness, "A(", 1)
    for i in range(2, MAX_PENDING + 2):
        open_guided(harness, f"AB{{{i}}}", i)
    harness.step()
    assert isinstance(harness.error(MAX_PENDING + 1), Exhausted)
    gate.set()
    event = next(event for event in posted.wait_for(MAX_PENDING) if event[1] == GrammarCompiled(1))
    harness.post(event[1])
    harness.step()
    assert "parenthesis" in str(harness.error(1))
