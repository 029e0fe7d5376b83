"""A conversation: what is remembered, what commands do, and how an answer is stopped."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from io import StringIO

import pytest
from rich.console import Console

from launcher.chat import ChatOptions, lines, run_chat
from launcher.client import connect
from launcher.request_options import RequestOptions
from launcher.terminal import DRAFTED
from tests.launcher.scripted_gateway import ScriptedGateway, serving

OPTIONS = ChatOptions(request=RequestOptions(max_tokens=9, seed=3), system="Be brief.", timeout=10)


@pytest.fixture
def gateway() -> Iterator[tuple[ScriptedGateway, str]]:
    with serving() as both:
        yield both


def talk(address: str, *said: str) -> str:
    console = Console(file=StringIO(), record=True, width=200)
    typed = iter(said)

    def read_line(prompt: str) -> str:
        try:
            return next(typed)
        except StopIteration:
            raise EOFError from None

    with connect(address) as client:
        run_chat(console, client, OPTIONS, read_line)
    return console.export_text()


def turns(gateway: ScriptedGateway, index: int) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in gateway.requests[index].prompt.chat.messages]


def test_each_question_goes_with_all_that_was_said_before(gateway: tuple[ScriptedGateway, str]) -> None:
    shown = talk(gateway[1], "Hi", "And you?")
    assert turns(gateway[0], 1) == [
        ("system", "Be brief."),
        ("user", "Hi"),
        ("assistant", "Hello you"),
        ("user", "And you?"),
    ]
    assert (gateway[0].requests[0].max_tokens, gateway[0].requests[0].seed) == (9, 3)
    assert shown.count("Hello you\n3 tokens, 1 of them drafted, in 2 passes") == 2


def test_reset_forgets_all_but_the_system_message(gateway: tuple[ScriptedGateway, str]) -> None:
    talk(gateway[1], "Hi", "/reset", "Who are you?")
    assert turns(gateway[0], 1) == [("system", "Be brief."), ("user", "Who are you?")]


def test_an_unknown_command_is_told_and_asks_nobody(gateway: tuple[ScriptedGateway, str]) -> None:
    assert "/rset is no command; /reset starts anew" in talk(gateway[1], "/rset now", "", "  ")
    assert gateway[0].requests == []


def test_a_turn_that_fails_is_told_and_never_was(gateway: tuple[ScriptedGateway, str]) -> None:
    assert "error: no room now" in talk(gateway[1], "refuse", "Hi")
    assert turns(gateway[0], 1) == [("system", "Be brief."), ("user", "Hi")]


def test_ctrl_c_stops_the_answer_frees_it_and_the_conversation_goes_on(gateway: tuple[ScriptedGateway, str]) -> None:
    interrupt = threading.Timer(1.0, signal.raise_signal, (signal.SIGINT,))
    interrupt.start()
    shown = talk(gateway[1], "endless", "Hi")
    assert "stopped" in shown
    assert gateway[0].cancelled.wait(5)
    assert turns(gateway[0], 1)[1:] == [("user", "endless"), ("assistant", "Hello "), ("user", "Hi")]


def test_accepted_draft_tokens_are_coloured(gateway: tuple[ScriptedGateway, str]) -> None:
    console = Console(file=StringIO(), record=True, force_terminal=True, color_system="standard")
    typed = iter(["Hi"])
    with connect(gateway[1]) as client:
        run_chat(console, client, OPTIONS, lambda prompt: next(typed, None) or (_ for _ in ()).throw(EOFError))
    assert DRAFTED == "green"
    assert "\x1b[32myo\x1b[0mu" in console.export_text(styles=True)


def test_ctrl_c_while_typing_drops_the_line() -> None:
    said = iter([KeyboardInterrupt, " Hi ", EOFError])

    def read_line(prompt: str) -> str:
        match next(said):
            case str() as line:
                return line
            case kind:
                raise kind

    assert list(lines(read_line)) == ["Hi"]
