"""Gumbel noise in Triton: the same integers as sampling/philox.py, without touching memory until a token has its noise.

The torch reference of the same signature is slipstream.sampling.noise.gumbel_noise.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from slipstream.sampling.philox import Stream

BLOCK = 256  # Philox blocks of four tokens per program


@triton.jit
def gumbel_of_words(words: tl.tensor) -> tl.tensor:
    """g = -log(-log u), u = ((word >> 9) + 0.5) * 2^-23: u is in (0, 1), both ends excluded."""
    uniforms = ((words >> 9).to(tl.float32) + 0.5) * (1.0 / 8388608.0)
    return -tl.log(-tl.log(uniforms))


@triton.jit
def gumbel_block(
    key: tl.tensor,  # 64 bits
    blocks: tl.tensor,  # [BLOCK] uint32
    position: tl.tensor,  # uint32, as the next two
    stream_word: tl.tensor,
    sample_index: tl.tensor,
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """Noise of tokens 4 * blocks + 0..3: Philox4x32-10 at counter (blocks, position, stream_word, sample_index)."""
    w0, w1, w2, w3 = tl.philox(key, blocks, position, stream_word, sample_index)
    return gumbel_of_words(w0), gumbel_of_words(w1), gumbel_of_words(w2), gumbel_of_words(w3)


@triton.jit(do_not_specialize=["stream_word"])  # a value of 1 would arrive as a constant, without a type
def _gumbel_noise_kernel(
    noise_ptr: tl.tensor,  # [num_rows, vocab_size] fp32
    keys_ptr: tl.tensor,  # [num_rows] int64
    positions_ptr: tl.tensor,  # [num_rows] int64
    sample_indices_ptr: tl.tensor,  # [num_rows] int64
    vocab_size: int,
    stream_word: tl.tensor,  # scalar
    BLOCK: tl.constexpr,
) -> None:
    """noise[row, 4 * block + word] = gumbel_block(keys[row], block, positions[row], stream_word, samples[row])[word]"""
    row = tl.program_id(0).to(tl.int64)
    blocks = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    noise = gumbel_block(
        tl.load(keys_ptr + row),
        blocks.to(tl.uint32),
        tl.load(positions_ptr + row).to(tl.uint32),
        stream_word.to(tl.uint32),
        tl.load(sample_indices_ptr + row).to(tl.uint32),
    )
    for word in tl.static_range(4):
        tokens = blocks * 4 + word
        tl.store(noise_ptr + row * vocab_size + tokens, noise[word], mask=tokens < vocab_size)


def gumbel_noise(
    keys: torch.Tensor,  # [num_rows] int64, the bits of a 64-bit key
    positions: torch.Tensor,  # [num_rows] int64
    sample_indices: torch.Tensor,  # [num_rows] int64
    vocab_size: int,
    stream: Stream = Stream.RESIDUAL,
    draw: int = 0,
) -> torch.Tensor:
    """Noise of every token of the vocabulary: fp32 [num_rows, vocab_size]."""
    if not len(keys) == len(positions) == len(sample_indices):
        raise ValueError(
            f"{len(keys)} keys, {len(positions)} positions, {len(sample_indices)} sample indices: not one a row"
        )
    noise = torch.empty(len(keys), vocab_size, device=keys.device)
    if noise.numel():
        grid = (len(keys), triton.cdiv(vocab_size, 4 * BLOCK))
        stream_word = stream | draw << 8
        _gumbel_noise_kernel[grid](noise, keys, positions, sample_indices, vocab_size, stream_word, BLOCK=BLOCK)
    return noise
