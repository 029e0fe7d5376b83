"""A chat's answer as plain text and calls of functions. Knows the model's text; knows neither tokens nor JSON replies.

A call is read where the caller demanded one, or where the model's own chat template says how one is written. Whatever
is no whole call of an offered function is passed on as plain text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from gateway.openai.tools import Choice, Tool, parsed_call

OPEN: Final = "<tool_call>"
CLOSE: Final = "</tool_call>"


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    arguments: str  # JSON


class AnswerReader(Protocol):
    """Of one choice, whose text comes in pieces."""

    ends_with_calls: bool  # a call is why the answer ends

    def feed(self, piece: str) -> Iterator[str | Call]: ...

    def finish(self) -> Iterator[str | Call]:
        """What was held back until it was clear what it is."""


MakeReader = Callable[[], AnswerReader]


def make_reader(tools: list[Tool], choice: Choice | None, *, marked: bool) -> AnswerReader:
    """`marked`: the template writes calls between marks, so the model was told to."""
    if choice not in (None, "none", "auto"):
        return DemandedCall(choice)
    if tools and choice != "none" and marked:
        return MarkedCalls({tool.function.name for tool in tools})
    return PlainText()


class PlainText:
    ends_with_calls = False

    def feed(self, piece: str) -> Iterator[str | Call]:
        if piece:
            yield piece

    def finish(self) -> Iterator[str | Call]:
        yield from ()


class DemandedCall:
    """The whole output is one call."""

    def __init__(self, choice: Choice) -> None:
        self.ends_with_calls = choice == "required"  # where the function was named, it ends as any text
        self._choice = choice
        self._text = ""

    def feed(self, piece: str) -> Iterator[str | Call]:
        self._text += piece
        yield from ()

    def finish(self) -> Iterator[str | Call]:
        call = parsed_call(self._choice, self._text)
        yield self._text if call is None else Call(*call)


class MarkedCalls:
    """Calls stand between marks, text around them."""

    ends_with_calls = True

    def __init__(self, names: Collection[str]) -> None:
        self._names = names
        self._held = ""

    def feed(self, piece: str) -> Iterator[str | Call]:
        self._held += piece
        while (told := self._take()) is not None:
            yield told

    def finish(self) -> Iterator[str | Call]:
        if self._held:
            yield self._held
        self._held = ""

    def _take(self) -> str | Call | None:
        """The next text or call that is certain."""
        start = self._held.find(OPEN)
        if start != 0:
            return self._cut(start if start > 0 else len(self._held) - _begun(self._held)) or None
        end = self._held.find(CLOSE)
        if end < 0:
            return None
        written = self._cut(end + len(CLOSE))
        return self._call(written.removeprefix(OPEN).removesuffix(CLOSE)) or written

    def _cut(self, length: int) -> str:
        taken, self._held = self._held[:length], self._held[length:]
        return taken

    def _call(self, text: str) -> Call | None:
        try:
            call = json.loads(text)
            name, arguments = call["name"], call["arguments"]
        except (ValueError, KeyError, TypeError):
            return None
        if name not in self._names or not isinstance(arguments, dict):
            return None
        return Call(name, json.dumps(arguments, ensure_ascii=False))


def _begun(text: str) -> int:
    """How many characters at its end may become the mark."""
    return next((n for n in range(min(len(OPEN) - 1, len(text)), 0, -1) if text.endswith(OPEN[:n])), 0)
