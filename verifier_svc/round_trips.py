"""How long drafts take to come back for a commit, as one stream sees it. Knows commits and drafts; no network."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from slipstream.exchange import Commit, Draft
from slipstream.metrics.instruments import Histogram
from slipstream.request import FinishReason


class RoundTrips:
    """From a commit going out to the first draft that builds on all of it coming in: the drafter's time included.

    What was drafted ahead builds on less, and says nothing about the way.
    """

    def __init__(self, seconds: Histogram, clock: Callable[[], float] = time.perf_counter) -> None:
        self._seconds = seconds
        self._clock = clock
        self._unanswered: dict[int, tuple[int, float]] = {}  # by sequence: where its last commit ends, when it left

    def note_commits(self, commits: Iterable[Commit]) -> None:
        now = self._clock()
        for commit in commits:
            if commit.finish_reason is FinishReason.NONE:
                self._unanswered[commit.sequence_id] = commit.base + len(commit.token_ids), now
            else:
                self._unanswered.pop(commit.sequence_id, None)

    def note_close(self, sequence_id: int) -> None:
        self._unanswered.pop(sequence_id, None)

    def note_drafts(self, drafts: Iterable[Draft]) -> None:
        now = self._clock()
        for draft in drafts:
            base, left = self._unanswered.get(draft.sequence_id, (-1, 0.0))
            if draft.base == base:
                del self._unanswered[draft.sequence_id]
                self._seconds.observe(now - left, draft.proposer)
