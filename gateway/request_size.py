"""How much a request may hold before anybody reads it: making objects of it stops every stream. Knows no meaning.

A message of 12 MB can hold six million chat messages, and a document as many fields; the event loop stood still for
half a minute of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from slipstream.errors import InvalidRequest
from slipstream.request import (
    MAX_ALLOWED_TOKEN_IDS,
    MAX_BAD_WORD_TOKENS,
    MAX_BAD_WORDS,
    MAX_BIASED_TOKENS,
    MAX_STOP_STRINGS,
    MAX_STOP_TOKEN_IDS,
)

MAX_PROMPT_TOKEN_IDS: Final = 1 << 20  # the most that a policy can allow
MAX_MESSAGES: Final = 1 << 14  # of a chat
MAX_JSON_VALUES: Final = MAX_PROMPT_TOKEN_IDS + (1 << 17)  # a prompt of so many ids, and what is around it
MAX_JSON_FIELDS: Final = 1 << 16

_MOST: Final[Mapping[str, tuple[int, str]]] = {
    "stop": (MAX_STOP_STRINGS, "strings"),
    "stop_token_ids": (MAX_STOP_TOKEN_IDS, "ids"),
    "logit_bias": (MAX_BIASED_TOKENS, "tokens"),
    "allowed_token_ids": (MAX_ALLOWED_TOKEN_IDS, "ids"),
    "bad_words": (MAX_BAD_WORDS, "words"),
}


def check_message(message: Any) -> None:
    """Of a GenerateRequest. Raises InvalidRequest naming field, count and the most that it may hold."""
    for name, (most, unit) in _MOST.items():
        _require(len(getattr(message, name)), most, name, unit)
    for word in message.bad_words:
        _require(len(word.ids), MAX_BAD_WORD_TOKENS, "bad_words", "tokens in a word")
    check_prompt(message.prompt)


def check_prompt(prompt: Any) -> None:
    """Of a Prompt message."""
    _require(len(prompt.token_ids.ids), MAX_PROMPT_TOKEN_IDS, "prompt.token_ids", "ids")
    _require(len(prompt.chat.messages), MAX_MESSAGES, "prompt.chat", "messages")


def check_json(document: bytes, name: str) -> None:
    """Raises InvalidRequest if it holds more than a request can need. Right for JSON; what is none fails later."""
    values, fields = document.count(b","), document.count(b":")
    if values > MAX_JSON_VALUES or fields > MAX_JSON_FIELDS:  # those inside texts do not count
        values, fields = _outside_texts(document)
    _require(values, MAX_JSON_VALUES, name, "values", "holds")
    _require(fields, MAX_JSON_FIELDS, name, "fields", "holds")


def _outside_texts(document: bytes) -> tuple[int, int]:
    """Commas and colons that are no part of a string."""
    plain = np.frombuffer(document.replace(b"\\\\", b"").replace(b'\\"', b""), dtype=np.uint8)
    outside = plain[np.cumsum(plain == ord('"'), dtype=np.uint32) % 2 == 0]
    return int(np.count_nonzero(outside == ord(","))), int(np.count_nonzero(outside == ord(":")))


def _require(count: int, most: int, name: str, unit: str, verb: str = "is") -> None:
    if count > most:
        raise InvalidRequest(f"{name} {verb} {count}; it must be <= {most} {unit}")
