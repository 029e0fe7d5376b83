"""What a draft row's settings say on a GPU: numbers, keys, and the noise that verification will add. Ranks nothing."""

from __future__ import annotations

import triton
import triton.language as tl

from slipstream.kernels.draft_choice import Setting as S
from slipstream.kernels.noise import gumbel_block, gumbel_of_words
from slipstream.sampling.philox import Stream

SEED, SAMPLE_INDEX = tl.constexpr(int(S.SEED_LOW)), tl.constexpr(int(S.SAMPLE_INDEX))
RESIDUAL = tl.constexpr(int(Stream.RESIDUAL))


@triton.jit
def setting_float(row_ptr: tl.tensor, WHICH: tl.constexpr) -> tl.tensor:
    return tl.load(row_ptr + WHICH).to(tl.float32, bitcast=True)


@triton.jit
def load_key(row_ptr: tl.tensor, LOW: tl.constexpr) -> tl.tensor:
    low = tl.load(row_ptr + LOW).to(tl.uint32, bitcast=True).to(tl.uint64)
    high = tl.load(row_ptr + LOW + 1).to(tl.uint32, bitcast=True).to(tl.uint64)
    return low | (high << 32)


@triton.jit
def noise_at(row_ptr: tl.tensor, position: tl.tensor, token_ids: tl.tensor) -> tl.tensor:
    """RESIDUAL noise of the named tokens."""
    sample_index = tl.load(row_ptr + SAMPLE_INDEX).to(tl.uint32, bitcast=True)
    blocks, stream_word = (token_ids >> 2).to(tl.uint32), (position * 0 + RESIDUAL).to(tl.uint32)
    w0, w1, w2, w3 = tl.philox(load_key(row_ptr, SEED), blocks, position, stream_word, sample_index)
    word = token_ids & 3
    return gumbel_of_words(tl.where(word < 2, tl.where(word == 0, w0, w1), tl.where(word == 2, w2, w3)))


@triton.jit
def noise_from(row_ptr: tl.tensor, position: tl.tensor, first_token: tl.tensor, TILE: tl.constexpr) -> tl.tensor:
    """The same of TILE tokens one after another, the first divisible by 4: a quarter of the work."""
    sample_index = tl.load(row_ptr + SAMPLE_INDEX).to(tl.uint32, bitcast=True)
    blocks = (first_token // 4 + tl.arange(0, TILE // 4)).to(tl.uint32)
    g0, g1, g2, g3 = gumbel_block(load_key(row_ptr, SEED), blocks, position, RESIDUAL, sample_index)
    return tl.reshape(tl.join(tl.join(g0, g2), tl.join(g1, g3)), [TILE])
