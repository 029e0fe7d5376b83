"""Finds stop strings in text that arrives piece by piece. Knows characters; knows nothing of tokens or models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Piece:
    """What one piece of text made certain."""

    text: str  # safe to show: no stop string can begin in it any more
    stop_string: str = ""  # the stop string that this piece completed, if any; later pieces are ignored


class StopMatcher:
    """Feed the text of one token at a time: the piece with a `stop_string` is the token that ends the output.

    Text that may turn out to begin a stop string is held back until that is decided, or until `finish`.
    The stop string that is complete first wins, then the longest: how the text was cut into pieces plays no part.
    """

    def __init__(self, stop_strings: Sequence[str] = (), *, include_stop: bool = False) -> None:
        self._stop_strings = tuple(stop_strings)
        self._longest = max(map(len, self._stop_strings), default=0)
        self._include_stop = include_stop
        self._held = ""
        self.stopped = False

    def feed(self, text: str) -> Piece:
        if self.stopped or not text:
            return Piece("")
        pending = self._held + text
        if found := self._first_match(pending):
            return self._stop(pending, *found)
        keep = self._length_of_possible_beginning(pending)
        self._held = pending[len(pending) - keep :]
        return Piece(pending[: len(pending) - keep])

    def finish(self) -> str:
        """The text still held back; to be called when no more text comes."""
        held, self._held = self._held, ""
        return held

    def _first_match(self, text: str) -> tuple[int, str] | None:
        starts = [(text.find(stop), stop) for stop in self._stop_strings]
        found = [(start + len(stop), start, stop) for start, stop in starts if start >= 0]
        return min(found)[1:] if found else None

    def _stop(self, pending: str, start: int, stop: str) -> Piece:
        self.stopped = True
        self._held = ""
        return Piece(pending[: start + len(stop)] if self._include_stop else pending[:start], stop)

    def _length_of_possible_beginning(self, text: str) -> int:
        """Characters at the end of `text`, from the earliest place where a stop string may have begun."""
        for start in range(max(0, len(text) - self._longest + 1), len(text)):
            tail = text[start:]
            if any(stop.startswith(tail) for stop in self._stop_strings):
                return len(tail)
        return 0
