"""How much computing one sequence's grammar may take from all the others. Knows times; knows no grammar, no sequence.

An ambiguous grammar, such as that of ((a*)*b*)*, takes ever longer for each token: after 250 of them a third of a
second, in which nobody else gets any.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

SECONDS_PER_TOKEN: Final = 0.005  # a hundred times what grammars usually take
SLACK_SECONDS: Final = 1.0  # more than that, now and then


class GrammarBudget:
    """Of processor time, so that a busy machine costs no sequence its life."""

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        self._clock = clock
        self._debt = 0.0

    @property
    def is_overdrawn(self) -> bool:
        return self._debt > SLACK_SECONDS

    @contextmanager
    def spent(self) -> Iterator[None]:
        """Counts what happens inside."""
        began = self._clock()
        yield
        self._debt += self._clock() - began

    def note_tokens(self, num_tokens: int) -> None:
        """Committed ones: each allows for more."""
        self._debt = max(0.0, self._debt - num_tokens * SECONDS_PER_TOKEN)
