"""What can go wrong with a request. Knows nothing of gRPC: wire/status.py maps these to status codes."""

from __future__ import annotations

import reprlib
from typing import Final

MAX_QUOTED: Final = 80  # characters of what a caller sent
_MAX_DEPTH: Final = 3  # of lists in lists: of more, what aliases of YAML make of a page would not fit into memory
_MAX_PARTS: Final = 32


class InvalidRequest(ValueError):
    """The caller's mistake; the message names parameter, value and range."""


class UnknownModel(LookupError):
    """The model asked for is not served here."""


class Unauthenticated(PermissionError):
    """No key, or one that no tenant has."""


class Exhausted(RuntimeError):
    """No room now; trying again later may help."""

    def __init__(self, text: str, *, retry_after_seconds: float = 1.0) -> None:
        super().__init__(text)
        self.retry_after_seconds = retry_after_seconds


class Unavailable(RuntimeError):
    """A service that is needed cannot be reached; trying again may help."""


class VocabularyMismatch(RuntimeError):
    """Drafter and target do not share a vocabulary; drafts would name other tokens."""


class DeadlineExceeded(TimeoutError):
    """The caller's deadline passed."""


class CheckpointError(RuntimeError):
    """Weights or configuration on disk are missing, truncated or of an unknown kind; the message names the file."""


def quoted(value: object) -> str:
    """For the text of an error: as Python writes it; of what is very long the beginning, and how long it is."""
    if isinstance(value, str):
        return repr(value) if len(value) <= MAX_QUOTED else f"{value[:MAX_QUOTED]!r}... ({len(value)} characters)"
    text = _writer().repr(value)
    return text if len(text) <= MAX_QUOTED else f"{text[:MAX_QUOTED]}..."


def _writer() -> reprlib.Repr:
    writer = reprlib.Repr()
    writer.maxlevel = _MAX_DEPTH
    writer.maxlist = writer.maxtuple = writer.maxdict = writer.maxset = writer.maxfrozenset = _MAX_PARTS
    writer.maxstring = writer.maxother = writer.maxlong = MAX_QUOTED + 1
    return writer
