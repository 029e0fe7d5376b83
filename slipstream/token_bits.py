"""Sets of tokens as packed bits: bit t & 31 of word t >> 5 is 1 where token t is in the set. Knows ids; no grammar."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.int32]

WORD_BITS: Final = 32


def num_words(vocab_size: int) -> int:
    """Of one set of tokens of such a vocabulary."""
    return -(-vocab_size // WORD_BITS)


def packed(token_ids: Collection[int], vocab_size: int) -> Words:
    """[num_words(vocab_size)] int32: the set of these tokens, those outside the vocabulary left out."""
    flags = np.zeros(num_words(vocab_size) * WORD_BITS, dtype=np.uint8)
    flags[[token_id for token_id in token_ids if token_id < vocab_size]] = 1
    return np.packbits(flags, bitorder="little").view("<i4")
