"""What an answer looks like on a terminal."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from launcher.terminal import DRAFTED, painted, progress, show
from slipstream.wire.v1 import generation_pb2 as pb

MESSAGE = pb.GenerateResponse(text="one two[/] tail", token_ids=[1, 2], drafted=[True, False], text_lengths=[4, 6])


def test_drafted_tokens_are_coloured_and_no_others() -> None:
    text = painted(MESSAGE)
    coloured = [text.plain[span.start : span.end] for span in text.spans if span.style == DRAFTED]
    assert coloured == ["one "]


def test_text_that_looks_like_markup_is_printed_as_it_is() -> None:
    console = Console(file=StringIO(), record=True)
    completion = show(console, [MESSAGE, MESSAGE])
    assert console.export_text() == "one two[/] tailone two[/] tail\n"
    assert completion.token_ids == [1, 2, 1, 2]


def test_progress_on_a_file_says_how_it_ended() -> None:
    console = Console(file=StringIO(), width=100)
    with progress(console, "model") as report:
        report("downloading", 0.5)
        report("ready", 1.0)
    assert "100% ready" in console.file.getvalue()  # type: ignore[attr-defined]
