"""Gumbel noise in torch, on any device: the same integers as philox.py. Knows nothing of laws.

One row of 49,152 tokens takes 0.8 ms on one CPU thread (`python -m bench.bench_sampling`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from slipstream.sampling.philox import KEY_STEPS, MULTIPLIERS, ROUNDS, WORD, Stream

BLOCKS_AT_ONCE = 1 << 14  # fit in a core's cache; 8 rows of 49,152 in one go took 1.3 times as long as one by one

Counter = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def key_tensor(keys: Sequence[int], device: torch.device | str = "cpu") -> torch.Tensor:
    """64-bit keys as int64 [num_rows] of the same bits."""
    return torch.from_numpy(np.asarray(keys, dtype=np.uint64).view(np.int64)).to(device)


def gumbel_noise(
    keys: torch.Tensor,  # [num_rows] int64, the bits of a 64-bit key
    positions: torch.Tensor,  # [num_rows] int64
    sample_indices: torch.Tensor,  # [num_rows] int64
    vocab_size: int,
    stream: Stream = Stream.RESIDUAL,
    draw: int = 0,
) -> torch.Tensor:
    """Noise of every token of the vocabulary: fp32 [num_rows, vocab_size]."""
    return gumbel_noise_of(range(vocab_size), keys, positions, sample_indices, stream, draw)


def gumbel_noise_of(
    tokens: range,  # of step 1, the first divisible by 4
    keys: torch.Tensor,  # [num_rows] int64
    positions: torch.Tensor,  # [num_rows] int64
    sample_indices: torch.Tensor,  # [num_rows] int64
    stream: Stream = Stream.RESIDUAL,
    draw: int = 0,
) -> torch.Tensor:
    """The same noise, of a slice of the vocabulary: fp32 [num_rows, len(tokens)]."""
    assert tokens.start % 4 == 0, "noise comes in fours of tokens"
    noise = torch.empty(len(keys), (len(tokens) + 3) // 4, 4, device=keys.device)
    blocks = torch.arange(noise.shape[1], device=keys.device) + tokens.start // 4
    step = max(1, BLOCKS_AT_ONCE // max(1, len(blocks)))
    for rows in (slice(first, first + step) for first in range(0, len(keys), step)):
        counter = blocks, positions[rows, None], _stream_word(stream, draw, keys), sample_indices[rows, None]
        for word, words in enumerate(_philox(counter, keys[rows, None])):
            noise[rows, :, word] = words >> 9 & 0x7FFFFF
    return _gumbel_(noise.flatten(1))[:, : len(tokens)]


def gumbel_noise_at(
    keys: torch.Tensor,  # [num_rows] int64
    positions: torch.Tensor,  # [num_rows] int64
    sample_indices: torch.Tensor,  # [num_rows] int64
    token_ids: torch.Tensor,  # [num_rows, num_tokens] int64
    stream: Stream = Stream.RESIDUAL,
    draw: int = 0,
) -> torch.Tensor:
    """The same noise, of the named tokens only: fp32 [num_rows, num_tokens]."""
    counter = (token_ids >> 2, positions[:, None], _stream_word(stream, draw, keys), sample_indices[:, None])
    words = torch.stack([words.expand_as(token_ids) for words in _philox(counter, keys[:, None])])
    chosen = words.gather(0, (token_ids & 3)[None])[0]
    return _gumbel_((chosen >> 9 & 0x7FFFFF).float())


def words_at(
    keys: torch.Tensor,  # [num_rows] int64
    positions: torch.Tensor,  # [num_rows] int64
    sample_indices: torch.Tensor,  # [num_rows] int64
    stream_words: torch.Tensor,  # [num_rows] int64: stream | draw << 8
) -> torch.Tensor:
    """The first random word of each row, as philox.random_words has it for token 0: int64 [num_rows], 32 bits."""
    counter = torch.zeros_like(positions), positions, stream_words, sample_indices
    return _philox(counter, keys)[0] & WORD


def _philox(counter: Counter, keys: torch.Tensor) -> Counter:
    """philox4x32, but the words come out with garbage above bit 31: only what is multiplied next must be clean."""
    c0, c1, c2, c3 = counter
    k0, k1 = keys & WORD, keys >> 32 & WORD
    for _ in range(ROUNDS):
        product0, product1 = c0 * MULTIPLIERS[0], c2 * MULTIPLIERS[1]  # wrap around in int64, bits unharmed
        c0, c1 = (product1 >> 32 ^ (c1 ^ k0)) & WORD, product1
        c2, c3 = (product0 >> 32 ^ (c3 ^ k1)) & WORD, product0
        k0, k1 = k0 + KEY_STEPS[0] & WORD, k1 + KEY_STEPS[1] & WORD
    return c0, c1, c2, c3


def _stream_word(stream: Stream, draw: int, like: torch.Tensor) -> torch.Tensor:
    return torch.full((1,), stream | draw << 8, device=like.device)  # filled there: a graph may not copy from the host


def _gumbel_(bits: torch.Tensor) -> torch.Tensor:
    """In place: 23 random bits, held in fp32, become Gumbel noise."""
    return bits.add_(0.5).mul_(2.0**-23).log_().neg_().log_().neg_()
