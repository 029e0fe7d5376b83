"""The log of a service: lines to read, or one JSON object a line. Knows formats; knows no service and no request.

What a program may want to pick out of a line goes beside the message, as `extra=fields(request=..., tenant=...)`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

LEVELS: Final = ("debug", "info", "warning", "error")

_FIELDS: Final = "fields"  # where a log record keeps them


def configure(level: str, *, as_json: bool = False) -> None:
    """Sets up the process's log, on stderr. Raises ValueError for a level that does not exist."""
    if level not in LEVELS:
        raise ValueError(f"log-level is {level!r}; it must be one of {', '.join(LEVELS)}")
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])


def fields(**values: object) -> dict[str, Mapping[str, object]]:
    """The `extra` argument of a logging call."""
    return {_FIELDS: values}


def fields_of(record: logging.LogRecord) -> Mapping[str, object]:
    found = getattr(record, _FIELDS, None)
    return found if isinstance(found, Mapping) else {}


class TextFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        pairs = " ".join(f"{name}={_as_word(value)}" for name, value in fields_of(record).items())
        return f"{super().formatMessage(record)} {pairs}".rstrip()


class JsonFormatter(logging.Formatter):
    """One object a line: time (RFC 3339, UTC), level, logger, message, the fields, a traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **fields_of(record),
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str, ensure_ascii=True)


def _as_word(value: object) -> str:
    """A text that is no plain word is quoted, so that nobody can forge a field, or a line."""
    if isinstance(value, float):
        return f"{value:.1f}"
    text = str(value)
    return text if text.isprintable() and text and not set(text) & set(" ='\"\\") else repr(text)
