"""Puts one sequence's commits in order. Knows bases and tokens; knows nothing of drafts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from slipstream.exchange import Commit

_MAX_EARLY: Final = 64


class CommitOrder:
    """Stale, repeated and contradicting commits are left out; one that is early waits for what it builds on."""

    def __init__(self) -> None:
        self._early: dict[int, Commit] = {}  # by base

    def take(self, commit: Commit, committed: Sequence[int]) -> Iterator[tuple[Commit, tuple[int, ...]]]:
        """Commits that apply now, each with the tokens it adds. The caller adds them to `committed` before the next."""
        if commit.base > len(committed):
            if len(self._early) < _MAX_EARLY:
                self._early[commit.base] = commit
            return
        waiting = [commit]
        while waiting:
            for ready in waiting:
                if new := _added_by(ready, committed):
                    yield ready, new
            waiting = [self._early.pop(base) for base in sorted(self._early) if base <= len(committed)]


def _added_by(commit: Commit, committed: Sequence[int]) -> tuple[int, ...]:
    known = tuple(committed[commit.base :])
    if known[: len(commit.token_ids)] != commit.token_ids[: len(known)]:
        return ()
    return commit.token_ids[len(known) :]
