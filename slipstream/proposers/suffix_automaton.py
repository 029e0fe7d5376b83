"""Every stretch of a growing text, and where it last ended: an automaton that grows a token at a time. Knows token ids.

A state stands for the stretches that end at the same places; its link leads to the longest shorter suffix that ends at
more places. A text of n tokens has at most 2n states. Extending by a token takes constant time on average (Blumer and
others, The smallest automaton recognizing the subwords of a text, 1985).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

BREAK: Final = -1  # no token: stands between texts that have nothing to do with each other
_ROOT: Final = 0


class Match(NamedTuple):
    length: int  # tokens of the suffix that was found; 0 = none
    end: int  # how much of the text stands before what followed it


class SuffixAutomaton:
    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.repeated = Match(0, 0)  # the longest suffix of the text that stood in it before
        self._next: list[dict[int, int]] = [{}]
        self._link = [_ROOT]
        self._length = [0]  # of the longest stretch of a state
        self._end = [0]  # a place where it ended, the last one known
        self._last = _ROOT  # the state of the whole text

    def __len__(self) -> int:
        return len(self.tokens)

    def extend(self, token_id: int) -> None:
        self.tokens.append(token_id)
        new = self._add(len(self.tokens), len(self.tokens), {})
        state = self._last
        while token_id not in self._next[state]:
            self._next[state][token_id] = new
            if state == _ROOT:
                break
            state = self._link[state]
        known = self._next[state][token_id]
        self._link[new] = _ROOT if known == new else self._as_longest(state, known, token_id)
        self._last = new
        self._note_repeated(self._link[new])

    def step(self, state: int, length: int, token_id: int) -> tuple[int, int]:
        """From the longest match of some text in this one to that of the text with one token more."""
        state = self.settled(state, length)
        while state != _ROOT and token_id not in self._next[state]:
            state = self._link[state]
            length = self._length[state]
        following = self._next[state].get(token_id)
        return (_ROOT, 0) if following is None else (following, length + 1)

    def settled(self, state: int, length: int) -> int:
        """The state of a match of this length; the text has grown since, and the state may have been divided."""
        while state != _ROOT and length <= self._length[self._link[state]]:
            state = self._link[state]
        return state

    def end_of(self, state: int) -> int:
        return self._end[state]

    def following(self, end: int, num_tokens: int) -> tuple[int, ...]:
        """The tokens after a place, up to the next break."""
        found = self.tokens[end : end + num_tokens]
        return tuple(found[: found.index(BREAK)] if BREAK in found else found)

    def _as_longest(self, state: int, known: int, token_id: int) -> int:
        """A state whose longest stretch is that of `state` and the token; made from `known` if that has longer ones."""
        length = self._length[state] + 1
        if self._length[known] == length:
            return known
        clone = self._add(length, self._end[known], dict(self._next[known]))
        self._link[clone] = self._link[known]
        self._link[known] = clone
        while self._next[state].get(token_id) == known:
            self._next[state][token_id] = clone
            if state == _ROOT:
                break
            state = self._link[state]
        return clone

    def _note_repeated(self, state: int) -> None:
        self.repeated = Match(self._length[state], self._end[state])
        if state != _ROOT:
            self._end[state] = len(self.tokens)  # the most recent is the best guess next time

    def _add(self, length: int, end: int, following: dict[int, int]) -> int:
        self._next.append(following)
        self._link.append(_ROOT)
        self._length.append(length)
        self._end.append(end)
        return len(self._length) - 1


class SuffixCursor:
    """The longest suffix, of at most `max_match` tokens, of one text in the automaton of another, which may grow."""

    def __init__(self, automaton: SuffixAutomaton, tail: Sequence[int], max_match: int) -> None:
        self.automaton = automaton
        self._max_match = max_match
        self._restart(tail)

    def advance(self, tail: Sequence[int]) -> None:
        """One token more, the last of `tail`, which holds at least the `max_match` last ones."""
        if len(self.automaton) != self._grown_to:
            self._restart(tail)
        else:
            self._step(tail[-1])

    def match(self, tail: Sequence[int]) -> Match:
        """Now; what the other text has gained since the last token counts too."""
        if len(self.automaton) != self._grown_to:
            self._restart(tail)
        return Match(self._length, self.automaton.end_of(self._state)) if self._length else Match(0, 0)

    def _restart(self, tail: Sequence[int]) -> None:
        self._state, self._length = 0, 0
        self._grown_to = len(self.automaton)
        for token_id in tail[-self._max_match :]:
            self._step(token_id)

    def _step(self, token_id: int) -> None:
        self._state, self._length = self.automaton.step(self._state, self._length, token_id)
        if self._length > self._max_match:
            self._length = self._max_match
            self._state = self.automaton.settled(self._state, self._length)
