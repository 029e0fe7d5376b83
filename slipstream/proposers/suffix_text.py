"""Recent text of bounded size, to look suffixes up in. Knows token ids; not whose they are."""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.proposers.suffix_automaton import BREAK, SuffixAutomaton


class SuffixText:
    """Two automata of half the size each: when the newer is full, the older is forgotten.

    So between half of `max_tokens` and all of them are remembered, breaks between texts included.
    """

    def __init__(self, max_tokens: int) -> None:
        if max_tokens < 2:
            raise ValueError(f"max_tokens is {max_tokens}; it must be >= 2")
        self.max_tokens = max_tokens
        self._older = SuffixAutomaton()
        self.newer = SuffixAutomaton()

    def __len__(self) -> int:
        return len(self._older) + len(self.newer)

    @property
    def automata(self) -> tuple[SuffixAutomaton, SuffixAutomaton]:
        """The newer one first."""
        return self.newer, self._older

    def extend(self, token_id: int) -> None:
        if len(self.newer) >= self.max_tokens // 2:
            self._older, self.newer = self.newer, SuffixAutomaton()
        self.newer.extend(token_id)

    def add(self, token_ids: Sequence[int]) -> None:
        """A text by itself: no match reaches into another."""
        for token_id in self.kept(token_ids):
            self.extend(token_id)

    def kept(self, token_ids: Sequence[int]) -> tuple[int, ...]:
        """What to extend by, one after the other, to add a text: of a very long one its end, then a break."""
        most = self.max_tokens // 2 - 1
        return (*token_ids[max(0, len(token_ids) - most) :], BREAK)
