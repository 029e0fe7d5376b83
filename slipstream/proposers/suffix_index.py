"""N-gram drafts by the longest suffix that stood before, in the sequence itself or in recent text of others.

Knows token ids, no model. The text of others must be such that this sequence may be drafted from it: of the same
tenant, committed, and drawn with other noise (docs/exactness.md).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from slipstream.proposers.ngram import copied
from slipstream.proposers.suffix_automaton import Match, SuffixAutomaton, SuffixCursor
from slipstream.proposers.suffix_text import SuffixText

MAX_MATCH: Final = 32
MIN_MATCH: Final = 2
OWN_TOKENS: Final = 4096  # of the sequence itself that are remembered; reading one costs some microseconds


class SuffixIndex:
    """Of equal matches the sequence's own goes first: what is proposed is a function of all committed text alone."""

    def __init__(self, shared: SuffixText | None = None, own_tokens: int = OWN_TOKENS) -> None:
        self._own = SuffixText(own_tokens)
        self._shared = shared
        self._tail: deque[int] = deque(maxlen=MAX_MATCH)
        self._cursors: dict[int, SuffixCursor] = {}  # by id of the automaton, which the cursor keeps alive
        self._num_tokens = 0

    def __len__(self) -> int:
        return self._num_tokens

    @property
    def match_length(self) -> int:
        return self._best()[0].length

    def extend(self, token_ids: Sequence[int]) -> None:
        """Tokens became final. Of a very long beginning only what can be remembered is read."""
        self._num_tokens += len(token_ids)
        for token_id in islice(token_ids, max(0, len(token_ids) - self._own.max_tokens), None):
            self._own.extend(token_id)
            self._tail.append(token_id)
            for cursor in self._cursors.values():
                cursor.advance(self._tail_list())

    def propose(self, num_tokens: int) -> tuple[int, ...]:
        """What followed the best match, or none."""
        match, automaton = self._best()
        if not match.length:
            return ()
        if automaton is not self._own.newer:
            return automaton.following(match.end, num_tokens)
        return copied(automaton.tokens, match.end, num_tokens)

    def _best(self) -> tuple[Match, SuffixAutomaton]:
        best, where = Match(0, 0), self._own.newer
        for match, automaton in self._matches():
            if match.length > best.length and match.length >= MIN_MATCH:
                best, where = match, automaton
        return best, where

    def _matches(self) -> Iterator[tuple[Match, SuffixAutomaton]]:
        own = self._own.newer
        yield Match(min(own.repeated.length, MAX_MATCH), own.repeated.end), own
        _, older = self._own.automata
        automata = [older, *(self._shared.automata if self._shared is not None else ())]
        known, self._cursors = self._cursors, {}
        tail = self._tail_list()
        for automaton in filter(len, automata):
            cursor = known.get(id(automaton)) or SuffixCursor(automaton, tail, MAX_MATCH)
            self._cursors[id(automaton)] = cursor
            match = cursor.match(tail)
            if automaton.following(match.end, 1):  # else it stood at the very end of its text
                yield match, automaton

    def _tail_list(self) -> list[int]:
        return list(self._tail)
