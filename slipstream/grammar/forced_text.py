"""What must come next in one sequence, byte by byte and no further than is of use. Knows masks; no grammar, no draft.

The library's own search goes on for as long as the grammar leaves no choice: for ever, in a grammar that cannot end, or
over a million bytes in one that counts to a million. Every other sequence would wait for it.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from slipstream.token_bits import WORD_BITS, num_words

MAX_BYTES = 64  # more than the tokens of a pass are likely to be

Row = npt.NDArray[np.int32]  # [num_words(vocab)], packed: which tokens may come


class FirstBytes:
    """Of all tokens of a vocabulary: 32 bytes of memory for each."""

    def __init__(self, token_bytes: Sequence[bytes]) -> None:
        self.token_bytes = token_bytes
        shape = 257, WORD_BITS * num_words(len(token_bytes))  # the last row: of those without any byte
        flags = np.ones(shape, dtype=np.uint8)
        firsts = [text[0] if text else 256 for text in token_bytes]
        flags[firsts, np.arange(len(token_bytes))] = 0
        flags[:, len(token_bytes) :] = 0
        self._others = np.packbits(flags, axis=1, bitorder="little").view(np.int32)

    def common(self, row: Row) -> bytes:
        """The byte that every token of the row begins with; empty if there is no such byte."""
        words = np.flatnonzero(row)
        if not len(words):
            return b""
        word = int(words[0])
        lowest = int(row[word]) & -int(row[word])
        token_id = WORD_BITS * word + lowest.bit_length() - 1
        first = self.token_bytes[token_id][:1] if token_id < len(self.token_bytes) else b""
        return first if first and not (row & self._others[first[0]]).any() else b""


class ForcedText:
    """What is known of it is kept from commit to commit, so that each byte costs one mask."""

    def __init__(self, firsts: FirstBytes) -> None:
        self._firsts = firsts
        self._known = b""

    def advance(self, token_ids: Sequence[int]) -> None:
        """Takes committed tokens."""
        for token_id in token_ids:
            text = self._firsts.token_bytes[token_id]
            self._known = self._known.removeprefix(text) if self._known.startswith(text) else b""

    def look(self, step: Callable[[bytes], bool], fill: Callable[[Row], None]) -> tuple[str, int]:
        """The whole characters of it, and how many steps were made.

        `step` goes on by some bytes and says whether they may come; `fill` writes the row of what may come then.
        """
        num_steps = int(bool(self._known) and step(self._known))
        row = np.zeros(num_words(len(self._firsts.token_bytes)), dtype=np.int32)
        while len(self._known) < MAX_BYTES:
            fill(row)
            byte = self._firsts.common(row)
            if not byte or not step(byte):
                break
            num_steps += 1
            self._known += byte
        return _whole_characters(self._known), num_steps


def _whole_characters(text: bytes) -> str:
    """Nothing if the text begins or goes on inside a character."""
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(text)
    except UnicodeDecodeError:
        return ""
