"""Counter-based noise in plain numpy: the meaning of every random number here. Knows nothing of laws, torch or devices.

Word `token & 3` of Philox4x32-10 at counter (token >> 2, position, stream | draw << 8, sample_index) under a 64-bit key
belongs to that token at that position. Nothing else is state: the same numbers come out in any batch, order or process.
(Salmon and others, Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011.)
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
WORD = 0xFFFFFFFF
DRAW_BITS = 24  # of a draw number fit in the counter beside the stream

UInts = npt.NDArray[np.uint64]  # 32-bit words, held in 64 bits so that products keep their high half
Words = tuple[UInts, UInts, UInts, UInts]
IntsLike = int | npt.ArrayLike


class Stream(IntEnum):
    """What a random number is for. Streams never share a counter, so what one decides says nothing about another."""

    DRAFT = 0  # the drafter draws its tokens
    ACCEPT = 1  # the verifier accepts or rejects them
    RESIDUAL = 2  # recovered and bonus tokens, coupled and one-hot checks; the drafter may see it to guess outcomes
    KEY = 3  # new keys from old


def philox4x32(counter: Words, key: tuple[UInts, UInts]) -> Words:
    """Ten rounds of Philox4x32 over broadcastable arrays of 32-bit words."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        product0, product1 = c0 * np.uint64(MULTIPLIERS[0]), c2 * np.uint64(MULTIPLIERS[1])
        c0, c1, c2, c3 = _high(product1) ^ c1 ^ k0, _low(product1), _high(product0) ^ c3 ^ k1, _low(product0)
        k0, k1 = _low(k0 + np.uint64(KEY_STEPS[0])), _low(k1 + np.uint64(KEY_STEPS[1]))
    return c0, c1, c2, c3


def random_words(
    keys: IntsLike,
    positions: IntsLike,
    sample_indices: IntsLike,
    stream: Stream,
    *,
    token_ids: IntsLike = 0,
    draws: IntsLike = 0,
) -> npt.NDArray[np.uint32]:
    """The word of each (key, position, sample index, draw, token); all arguments broadcast against each other."""
    tokens, draws, keys = _uints(token_ids), _uints(draws), _uints(keys)
    if np.any(draws >> np.uint64(DRAW_BITS)):
        raise ValueError(f"draw is {draws.max()}; the counter holds {DRAW_BITS} bits, put the rest into the key")
    counter = (
        tokens >> np.uint64(2),
        _uints(positions),
        np.uint64(stream) | draws << np.uint64(8),
        _uints(sample_indices),
    )
    words = np.stack(np.broadcast_arrays(*philox4x32(counter, split_keys(keys)), tokens))
    which = (words[4:] & np.uint64(3)).astype(np.int64)
    chosen: npt.NDArray[np.uint32] = np.take_along_axis(words, which, 0)[0].astype(np.uint32)
    return chosen


def uniform(words: npt.NDArray[np.uint32]) -> npt.NDArray[np.float32]:
    """In (0, 1), ends excluded: 23 bits and a half. The usual 24-bit form rounds to 1 in fp32."""
    return ((words >> np.uint32(9)).astype(np.float32) + np.float32(0.5)) * np.float32(2.0**-23)


def gumbel(words: npt.NDArray[np.uint32]) -> npt.NDArray[np.float32]:
    """Standard Gumbel noise: argmax(log weight + gumbel) draws in proportion to weight."""
    noise: npt.NDArray[np.float32] = -np.log(-np.log(uniform(words)))
    return noise


def derive_keys(keys: IntsLike, nonces: IntsLike) -> UInts:
    """A new 64-bit key for each (key, nonce); under the old key no other stream has these counters."""
    low, high = split_keys(_uints(nonces))
    zero = np.uint64(0)
    words = philox4x32((low, high, _uints(Stream.KEY), _uints(zero)), split_keys(_uints(keys)))
    return words[0] | words[1] << np.uint64(32)


def derive_key(seed: int, nonce: int) -> int:
    """The key of a sequence's ACCEPT (verifier) or DRAFT (drafter) noise. RESIDUAL noise uses the seed itself."""
    return int(derive_keys(seed, nonce))


def split_keys(keys: UInts) -> tuple[UInts, UInts]:
    """Low and high word of 64-bit keys."""
    return _low(keys), _high(keys)


def _low(values: UInts) -> UInts:
    return values & np.uint64(WORD)


def _high(values: UInts) -> UInts:
    return values >> np.uint64(32)


def _uints(values: IntsLike) -> UInts:
    return np.asarray(values, dtype=np.uint64)
