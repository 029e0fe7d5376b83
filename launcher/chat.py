"""`slipstream chat`: a conversation in the terminal, turn by turn. Knows turns and commands; no gateway's insides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from rich.console import Console

from launcher.client import Client, Completion
from launcher.generate import summary
from launcher.request_options import RequestOptions, make_request
from launcher.terminal import painted
from slipstream.wire.v1 import generation_pb2 as pb

RESET = "/reset"
HELP = f"{RESET} starts anew, Ctrl-C stops an answer, Ctrl-D ends."
TURN_FAILURES = (RuntimeError, OSError, ValueError)  # of one turn; the conversation goes on


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatOptions:
    request: RequestOptions
    system: str = ""  # message before the first turn; empty = none
    timeout: float = 300.0  # seconds, of one answer


class Chat:
    """A conversation. An answer that was stopped counts as far as it came; a turn that failed never was."""

    def __init__(self, console: Console, client: Client, options: ChatOptions) -> None:
        self._console = console
        self._client = client
        self._options = options
        self.messages: list[pb.ChatMessage] = []
        self.reset()

    def reset(self) -> None:
        system = self._options.system
        self.messages = [pb.ChatMessage(role="system", content=system)] if system else []

    def take(self, line: str) -> None:
        """One line of the user: a command, or something to answer."""
        if line == RESET:
            self.reset()
            self._say("started anew")
        elif line.startswith("/"):
            self._say(f"{line.split()[0]} is no command; {HELP}")
        elif line:
            self._answer(pb.ChatMessage(role="user", content=line))

    def _answer(self, question: pb.ChatMessage) -> None:
        prompt = pb.Prompt(chat=pb.ChatMessages(messages=[*self.messages, question]))
        completion = Completion()
        try:
            self._stream(make_request(prompt, self._options.request), completion)
            self._say(summary(completion))
        except KeyboardInterrupt:
            self._say("\nstopped")
        except TURN_FAILURES as error:
            self._console.print(f"error: {error}", style="red", markup=False, soft_wrap=True)
            return
        self.messages += [question, pb.ChatMessage(role="assistant", content=completion.text)]

    def _stream(self, request: pb.GenerateRequest, completion: Completion) -> None:
        for message in self._client.generate(request, self._options.timeout):
            completion.add(message)
            self._console.print(painted(message), end="", soft_wrap=True)
        self._console.print()

    def _say(self, text: str) -> None:
        self._console.print(text, style="dim", markup=False, highlight=False)


def run_chat(console: Console, client: Client, options: ChatOptions, read_line: Callable[[str], str] = input) -> None:
    """Until the input ends."""
    with suppress(ImportError):  # not on every platform
        import readline  # noqa: F401  gives `input` line editing and the lines before
    chat = Chat(console, client, options)
    console.print(HELP, style="dim")
    for line in lines(read_line):
        chat.take(line)
    console.print()


def lines(read_line: Callable[[str], str]) -> Iterator[str]:
    """What is typed, without the blanks around it; Ctrl-C while typing drops the line."""
    while True:
        try:
            yield read_line("> ").strip()
        except KeyboardInterrupt:
            print()
        except EOFError:
            return
