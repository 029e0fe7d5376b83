"""Where one sequence's output stands in its grammar, and what may come next. Knows tokens; nothing of drafts' laws."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from slipstream.grammar.forced_text import FirstBytes, ForcedText
from slipstream.grammar.surrogates import SurrogateGuard

if TYPE_CHECKING:
    import xgrammar


class Matcher:
    """Moves on by committed tokens only. What looks further ahead steps back before it returns."""

    def __init__(
        self,
        matcher: xgrammar.GrammarMatcher,
        vocab_size: int,
        guard: SurrogateGuard,
        unusable: Collection[int],  # tokens that can never come, as special ones: the library warns of each
        firsts: FirstBytes,
    ) -> None:
        self._matcher = matcher
        self._vocab_size = vocab_size
        self._guard = guard
        self._unusable = unusable
        self._forced = ForcedText(firsts)
        self._last: int | None = None  # committed token

    @property
    def is_over(self) -> bool:
        """An end token came."""
        return self._matcher.is_terminated()

    @property
    def forced_text(self) -> str:
        """What must come next, as far as it is certain and of use; empty where there is a choice."""
        if self.is_over:
            return ""
        text, num_steps = self._forced.look(self._matcher.accept_string, self._fill_next)
        self._matcher.rollback(num_steps)
        return text

    def advance(self, token_ids: Sequence[int]) -> int:
        """Takes committed tokens; how many of them the grammar allows, from the first on."""
        count = self._accept(token_ids)
        if count:
            self._last = token_ids[count - 1]
        self._forced.advance(token_ids[:count])
        return count

    def num_allowed(self, token_ids: Sequence[int]) -> int:
        """How many of these tokens may follow, from the first on. Nothing may follow an end token."""
        count = self._accept(token_ids)
        self._matcher.rollback(count)
        return count

    def fill(
        self,
        token_ids: Sequence[int],  # may all follow
        bits: npt.NDArray[np.int32],  # [len(token_ids) + 1, ceil(vocab / 32)], written
    ) -> None:
        """For each position, given the tokens before it: bit t & 31 of word t >> 5 is 1 where token t may come.

        All bits are 1 where nothing may come: after an end token, where it does not matter, and at a dead end, which
        shows when the token that comes there is refused.
        """
        previous = self._last
        for row, token_id in enumerate(token_ids):
            self._fill_row(previous, bits[row])
            accepted = self._matcher.accept_token(token_id)
            assert accepted, f"token {token_id} was allowed a moment ago"
            previous = token_id
        self._fill_row(previous, bits[-1])
        self._matcher.rollback(len(token_ids))

    def _fill_row(self, previous: int | None, row: npt.NDArray[np.int32]) -> None:
        if not self.is_over:
            self._fill_next(row)
            self._guard.clear(previous, row)
        if self.is_over or not self._any_allowed(row):
            row[:] = -1

    def _fill_next(self, row: npt.NDArray[np.int32]) -> None:
        self._matcher.fill_next_token_bitmask(row[None])

    def _accept(self, token_ids: Sequence[int]) -> int:
        previous = self._last
        for count, token_id in enumerate(token_ids):
            if self.is_over or token_id in self._unusable or self._guard.forbids(previous, token_id):
                return count
            if not self._matcher.accept_token(token_id):
                return count
            previous = token_id
        return len(token_ids)

    def _any_allowed(self, row: npt.NDArray[np.int32]) -> bool:
        whole, rest = divmod(self._vocab_size, 32)
        return bool(row[:whole].any() or (rest and int(row[whole]) & ((1 << rest) - 1)))
