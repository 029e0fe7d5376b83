"""What a model wrote, as text and calls."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from gateway.openai.answers import AnswerReader, Call, DemandedCall, MarkedCalls, PlainText, make_reader
from gateway.openai.tools import Choice, Function, NamedFunction, NamedTool, Tool

ADD = Tool(type="function", function=Function(name="add"))
NAMED = NamedTool(type="function", function=NamedFunction(name="add"))
BODY = '{"name": "add", "arguments": {"a": 1}}'
MARKED = f"<tool_call>\n{BODY}\n</tool_call>"
CALL = Call("add", '{"a": 1}')


def read(reader: AnswerReader, pieces: Iterable[str]) -> list[str | Call]:
    """Neighbouring texts are put together."""
    told: list[str | Call] = []
    for one in (*(one for piece in pieces for one in reader.feed(piece)), *reader.finish()):
        if isinstance(one, str) and told and isinstance(told[-1], str):
            told[-1] += one
        else:
            told.append(one)
    return told


@pytest.mark.parametrize(
    ("tools", "choice", "marked", "kind"),
    [
        ([], None, True, PlainText),
        ([ADD], None, False, PlainText),
        ([ADD], "none", True, PlainText),
        ([ADD], None, True, MarkedCalls),
        ([ADD], "auto", True, MarkedCalls),
        ([ADD], "required", False, DemandedCall),
        ([ADD], NAMED, True, DemandedCall),
    ],
)
def test_calls_are_read_where_one_was_demanded_or_the_template_says_how(
    tools: list[Tool], choice: Choice | None, marked: bool, kind: type[AnswerReader]
) -> None:
    assert isinstance(make_reader(tools, choice, marked=marked), kind)


def test_plain_text_is_told_as_it_comes() -> None:
    assert list(PlainText().feed(MARKED)) == [MARKED]
    assert read(PlainText(), ["a", "", "b"]) == ["ab"]


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("plain < text", ["plain < text"]),
        (MARKED, [CALL]),
        (f"I add.\n{MARKED}", ["I add.\n", CALL]),
        (f"{MARKED}\n{MARKED}", [CALL, "\n", CALL]),
        ("<tool_", ["<tool_"]),
        ("<tool_call>{", ["<tool_call>{"]),
        ("<tool_call>no</tool_call>", ["<tool_call>no</tool_call>"]),
        ("<tool_call>[]</tool_call>", ["<tool_call>[]</tool_call>"]),
        (MARKED.replace("add", "sub"), [MARKED.replace("add", "sub")]),
        (MARKED.replace('{"a": 1}', '"a"'), [MARKED.replace('{"a": 1}', '"a"')]),
    ],
)
def test_marked_calls_are_cut_out_however_the_text_is_cut(text: str, told: list[str | Call], size: int) -> None:
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    assert read(MarkedCalls({"add"}), pieces) == told


def test_text_that_cannot_become_a_mark_is_not_held_back() -> None:
    reader = MarkedCalls({"add"})
    assert list(reader.feed("a <tool")) == ["a "]
    assert list(reader.feed("box")) == ["<toolbox"]


def test_a_demanded_call_is_told_when_it_is_whole() -> None:
    reader = DemandedCall("required")
    assert list(reader.feed(BODY)) == []
    assert list(reader.finish()) == [CALL]
    assert reader.ends_with_calls
    assert not DemandedCall(NAMED).ends_with_calls
    assert read(DemandedCall(NAMED), ['{"a": 1}']) == [CALL]


def test_a_demanded_call_that_was_cut_is_the_text_it_is() -> None:
    assert read(DemandedCall("required"), [BODY[:10]]) == [BODY[:10]]
