"""The log: fields beside a message, as words or as JSON."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from slipstream import logs


def record(message: str = "ended", **values: object) -> logging.LogRecord:
    made = logging.LogRecord("gateway.requests", logging.INFO, "f.py", 1, message, (), None)
    made.__dict__.update(logs.fields(**values) if values else {})
    return made


def test_an_unknown_level_is_named_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="log-level is 'loud'; it must be one of debug, info, warning, error"):
        logs.configure("loud")


def test_a_line_of_text_ends_with_its_fields() -> None:
    line = logs.TextFormatter().format(record(request="r-1", tokens=3, total_ms=1.25))
    assert line.endswith("INFO gateway.requests ended request=r-1 tokens=3 total_ms=1.2")


def test_what_a_caller_sent_can_forge_neither_a_line_nor_a_field() -> None:
    line = logs.TextFormatter().format(record(request="a\nb", reason="x end=STOP"))
    assert line.endswith(r"request='a\nb' reason='x end=STOP'")
    assert "\n" not in line


def test_json_has_one_object_a_line_with_the_fields_as_they_are() -> None:
    line = logs.JsonFormatter().format(record(request="a\nb", tokens=3))
    assert "\n" not in line
    entry = json.loads(line)
    assert entry.pop("time").endswith("+00:00")
    assert entry == {
        "level": "info", "logger": "gateway.requests", "message": "ended", "request": "a\nb", "tokens": 3,
    }  # fmt: skip


def test_json_holds_the_traceback_in_its_line() -> None:
    failed = record()
    try:
        raise KeyError("x")
    except KeyError:
        failed.exc_info = sys.exc_info()
    line = logs.JsonFormatter().format(failed)
    assert "\n" not in line
    assert "KeyError: 'x'" in json.loads(line)["traceback"]
