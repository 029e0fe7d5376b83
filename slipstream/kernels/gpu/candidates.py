"""Copies the few tokens that a row's limit lies among aside, in their order, by all of the GPU.

Counts per chunk are known from pivots.py, so every chunk knows its place, and one read is enough.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from slipstream.kernels.gpu.check_table import CheckTable
from slipstream.kernels.gpu.pivots import (
    PIVOTS,
    chunk_size,
    even_pivots,
    first_bracket,
    is_searched,
    pivots_between,
    row_law,
    second_bracket,
)
from slipstream.kernels.gpu.row_statistics import RowParts, distances

SET_ASIDE = tl.constexpr(8192)  # tokens of one row
BLOCK = tl.constexpr(1024)


@triton.jit
def nearest_candidate(low: tl.tensor, low_count: tl.tensor, high_count: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """Candidates lie beyond this distance (its bits), and whether there are few enough to be set aside.

    All within `high` if they fit, so that top-p after top-k finds its tokens there too; else those of the bracket.
    """
    fits = high_count - low_count <= SET_ASIDE
    return tl.where(high_count <= SET_ASIDE, -1, low), fits


@triton.jit
def _count_within(
    sums_ptr: tl.tensor, pivots: tl.tensor, pivot: tl.tensor, num_chunks: tl.tensor, CHUNKS: tl.constexpr
) -> tl.tensor:
    """Each chunk's number of tokens within one of the pivots, which may stand there twice; 0 if it is none of them."""
    chunks = tl.arange(0, CHUNKS)[:, None]
    at = sums_ptr + chunks * 2 * PIVOTS + tl.arange(0, PIVOTS)[None, :]
    counts = tl.load(at, mask=chunks < num_chunks, other=0.0)
    return tl.max(tl.where(pivots[None, :] == pivot, counts, 0.0), 1)


@triton.jit
def _set_aside_kernel(
    logits_ptr: tl.tensor,  # [num_rows, vocab_size], rows row_stride apart
    table_ptr: tl.tensor,  # [num_rows, width] int32
    values_ptr: tl.tensor,  # [num_rows, num_tiles, 4] fp32
    even_ptr: tl.tensor,  # [num_rows, num_chunks, 2, PIVOTS] fp32
    fine_ptr: tl.tensor,  # the same shape
    aside_ptr: tl.tensor,  # [num_rows, SET_ASIDE], out, of the logits' type
    row_stride: int,
    width: int,
    vocab_size: int,
    num_tiles: int,
    num_chunks: int,
    CHUNK: tl.constexpr,
    TILES: tl.constexpr,
    CHUNKS: tl.constexpr,
) -> None:
    """aside = the logits whose distance lies in (nearest, high]."""
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    settings_ptr = table_ptr + row * width
    if is_searched(settings_ptr) == 0:
        return
    largest, temperature, total, _ = row_law(settings_ptr, values_ptr + row * num_tiles * 4, num_tiles, TILES)
    even_ptr += row * num_chunks * 2 * PIVOTS
    fine_ptr += row * num_chunks * 2 * PIVOTS
    _, _, even_low, _, _, even_high, _, _ = first_bracket(settings_ptr, even_ptr, num_chunks, total, CHUNKS)
    _, _, low, low_count, _, high, high_count, _ = second_bracket(
        settings_ptr, even_ptr, fine_ptr, num_chunks, total, CHUNKS
    )
    nearest, fits = nearest_candidate(low, low_count, high_count)
    if fits == 0:
        return
    fine = pivots_between(even_low, even_high)
    nearer = tl.maximum(
        _count_within(fine_ptr, fine, nearest, num_chunks, CHUNKS),
        _count_within(even_ptr, even_pivots(), nearest, num_chunks, CHUNKS),
    )
    candidates = _count_within(fine_ptr, fine, high, num_chunks, CHUNKS) - nearer
    place = tl.sum(tl.where(tl.arange(0, CHUNKS) < chunk, candidates, 0.0), 0).to(tl.int32)
    for first in range(chunk * CHUNK, min(chunk * CHUNK + CHUNK, vocab_size), BLOCK):
        index = first + tl.arange(0, BLOCK)
        logits = tl.load(logits_ptr + row * row_stride + index, mask=index < vocab_size, other=float("-inf")).to(
            tl.float32
        )
        keys = distances(logits, largest, temperature).to(tl.int32, bitcast=True)
        chosen = ((index < vocab_size) & (keys > nearest) & (keys <= high)).to(tl.int32)
        places = place + tl.cumsum(chosen, 0) - 1
        tl.store(aside_ptr + row * SET_ASIDE + places, logits, mask=(chosen == 1) & (places < SET_ASIDE))
        place += tl.sum(chosen, 0)


def set_aside(
    logits: torch.Tensor,  # [num_rows, vocab_size]
    table: CheckTable,
    parts: RowParts,  # of the whole vocabulary
    sums: torch.Tensor,  # [2, num_rows, num_chunks, 2, PIVOTS] fp32, from pivot_sums
) -> torch.Tensor:
    """[num_rows, SET_ASIDE]: the candidates' logits; unwritten where there are none or too many."""
    num_rows, vocab_size = logits.shape
    num_tiles, num_chunks = parts.tokens.shape[1], sums.shape[2]
    aside = logits.new_empty(num_rows, SET_ASIDE.value)  # a search goes through either, so both have one type
    if table.searched:
        _set_aside_kernel[(num_rows, num_chunks)](
            logits,
            table.words,
            parts.values,
            sums[0],
            sums[1],
            aside,
            logits.stride(0),
            table.words.stride(0),
            vocab_size,
            num_tiles,
            num_chunks,
            CHUNK=chunk_size(num_rows, vocab_size),
            TILES=triton.next_power_of_2(num_tiles),
            CHUNKS=triton.next_power_of_2(num_chunks),
            num_warps=8,
        )
    return aside
