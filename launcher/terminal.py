"""Answers on a terminal: drafted-and-accepted tokens in colour, progress, errors. Knows rich; no gateway."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from launcher.client import Completion, pieces
from launcher.model_fetch import Report
from slipstream.wire.v1 import generation_pb2 as pb

DRAFTED = "green"
PROMPT = "dim"


def show(console: Console, messages: Iterable[pb.GenerateResponse]) -> Completion:
    """Prints an answer as it comes and returns it whole."""
    completion = Completion()
    for message in messages:
        completion.add(message)
        console.print(painted(message), end="", soft_wrap=True)
    console.print()
    return completion


def painted(message: pb.GenerateResponse) -> Text:
    return _painted((message.prompt.text, PROMPT), pieces(message))


def painted_whole(completion: Completion) -> Text:
    return _painted(("", ""), zip(completion.texts, completion.drafted, strict=True))


def _painted(first: tuple[str, str], told: Iterable[tuple[str, bool]]) -> Text:
    return Text.assemble(first, *((text, DRAFTED if drafted else "") for text, drafted in told))


@contextmanager
def progress(console: Console, title: str) -> Iterator[Report]:
    """One bar for everything that a long command does."""
    columns = (TextColumn(title), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[what]}"))
    with Progress(*columns, TimeElapsedColumn(), console=console) as bar:
        task = bar.add_task(title, total=1.0, what="")
        yield lambda what, done: bar.update(task, completed=done, what=what)
