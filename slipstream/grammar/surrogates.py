"""Keeps halves of surrogate pairs out of output: bytes ED A0..BF, which are no UTF-8. Knows tokens' bytes only.

The library's grammars take them for characters. A token that holds such bytes whole is out of the vocabulary
(compiler.py); what is left to look at are those that lie across two tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from slipstream.token_bits import packed

OPENING = 0xED
SECOND_HALVES = range(0xA0, 0xC0)


class SurrogateGuard:
    def __init__(self, token_bytes: Sequence[bytes]) -> None:
        self._opening = frozenset(i for i, text in enumerate(token_bytes) if text[-1:] == bytes([OPENING]))
        self._completing = frozenset(i for i, text in enumerate(token_bytes) if text and text[0] in SECOND_HALVES)
        self._others = ~packed(self._completing, len(token_bytes))

    def forbids(self, previous: int | None, token_id: int) -> bool:
        """Whether the two tokens, one after the other, hold such bytes."""
        return previous in self._opening and token_id in self._completing

    def clear(self, previous: int | None, row: npt.NDArray[np.int32]) -> None:
        """Takes out of a row of allowed tokens, packed, what `forbids` would."""
        if previous in self._opening:
            row &= self._others
