"""Says each thing once, however many sequences meet it. Knows texts only."""

from __future__ import annotations

import logging

_LOG = logging.getLogger(__name__)


class Complaints:
    def __init__(self) -> None:
        self._said: set[str] = set()

    def once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            _LOG.warning(text)
