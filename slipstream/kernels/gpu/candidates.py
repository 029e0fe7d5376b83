"""Sets the tokens aside that a row's limit lies among, by all of the GPU, and sums up what lies nearer.

The one whole read of the logits that a search needs besides the statistics' own; its sums prove or refute the bracket.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from slipstream.kernels.gpu import launch
from slipstream.kernels.gpu.check_table import CheckTable
from slipstream.kernels.gpu.distance_keys import EVERYTHING, is_searched, keys_of, row_law
from slipstream.kernels.gpu.launch import wait_for_inputs
from slipstream.kernels.gpu.row_statistics import RowParts
from slipstream.kernels.gpu.sampled_bracket import PARTS, PIVOTS, bracket, num_sampled, sample

SET_ASIDE = tl.constexpr(8192)  # tokens of one row
BLOCK = tl.constexpr(1024)
PROGRAMS_WANTED = 660  # five for each of a Hopper's multiprocessors
MOST_TURNS = 16
NEARER, CANDIDATES, NEARER_WEIGHT, CANDIDATES_WEIGHT = (tl.constexpr(i) for i in range(4))
NUM_SUMS = 4


@dataclass(frozen=True, slots=True)
class Candidates:
    bounds: torch.Tensor  # [num_rows, 2] int32: the keys that the bracket lies between, the first excluded
    sums: torch.Tensor  # [num_rows, num_chunks, 4] fp32: numbers nearer than and within the bracket, and weights
    logits: torch.Tensor  # [num_rows, SET_ASIDE], in no order; unwritten where there are none, or too many


@triton.jit
def _set_aside_kernel(
    logits_ptr: tl.tensor,  # [num_rows, vocab_size], rows row_stride apart
    table_ptr: tl.tensor,  # [num_rows, width] int32
    values_ptr: tl.tensor,  # [num_rows, num_tiles, 4] fp32
    far_ptr: tl.tensor,  # [num_rows, PARTS, PIVOTS] fp32
    taken_ptr: tl.tensor,  # [num_rows] int32, places taken so far
    bounds_ptr: tl.tensor,  # [num_rows, 2] int32, out
    sums_ptr: tl.tensor,  # [num_rows, num_chunks, 4] fp32, out
    aside_ptr: tl.tensor,  # [num_rows, SET_ASIDE], out, of the logits' type
    row_stride: int,
    width: int,
    vocab_size: int,
    num_tiles: int,
    sampled: int,
    CHUNK: tl.constexpr,
    TILES: tl.constexpr,
    PARTS: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    """aside = the logits whose key lies in (low, high]; which of them stands where is left to chance."""
    wait_for_inputs(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    settings_ptr = table_ptr + row * width
    if is_searched(settings_ptr) == 0:
        return
    logits_ptr += row * row_stride
    end = min(chunk * CHUNK + CHUNK, vocab_size)
    index = chunk * CHUNK + tl.arange(0, BLOCK)
    coming = tl.load(logits_ptr + index, mask=index < end, other=float("-inf"))  # on its way while the bracket is made
    largest, temperature, total, _ = row_law(settings_ptr, values_ptr + row * num_tiles * 4, num_tiles, TILES)
    low, high = bracket(settings_ptr, far_ptr + row * PARTS * PIVOTS, total, vocab_size, sampled, PARTS)
    if chunk == 0:
        tl.store(bounds_ptr + row * 2, low)
        tl.store(bounds_ptr + row * 2 + 1, high)
    zeros = tl.zeros([BLOCK], tl.float32)  # sums are taken by thread, and over all threads once at the end
    nearer, candidates, nearer_weight, candidates_weight = zeros, zeros, zeros, zeros
    for first in range(chunk * CHUNK, end, BLOCK):
        logits = coming
        index = first + BLOCK + tl.arange(0, BLOCK)
        coming = tl.load(logits_ptr + index, mask=index < end, other=float("-inf"))
        keys, weights = keys_of(logits.to(tl.float32), largest, temperature)
        chosen = (keys > low) & (keys <= high) & (keys < EVERYTHING)
        candidates += tl.where(chosen, 1.0, 0.0)
        candidates_weight += tl.where(chosen, weights, 0.0)
        nearer += tl.where(keys <= low, 1.0, 0.0)
        nearer_weight += tl.where(keys <= low, weights, 0.0)
        if tl.max(chosen.to(tl.int32), 0) > 0:
            places = tl.cumsum(chosen.to(tl.int32), 0) - 1
            places += tl.atomic_add(taken_ptr + row, tl.max(places, 0) + 1)
            tl.store(aside_ptr + row * SET_ASIDE + places, logits, mask=chosen & (places < SET_ASIDE))
    sums_ptr += (row * tl.num_programs(1) + chunk) * 4
    tl.store(sums_ptr + NEARER, tl.sum(nearer, 0))
    tl.store(sums_ptr + CANDIDATES, tl.sum(candidates, 0))
    tl.store(sums_ptr + NEARER_WEIGHT, tl.sum(nearer_weight, 0))
    tl.store(sums_ptr + CANDIDATES_WEIGHT, tl.sum(candidates_weight, 0))


def chunk_size(num_rows: int, vocab_size: int) -> int:
    """Tokens of one program: as many as leave work for all of the GPU, since each begins with the row's bracket."""
    turns = num_rows * vocab_size // (PROGRAMS_WANTED * BLOCK.value)
    return int(BLOCK.value * min(triton.next_power_of_2(max(turns, 1)), MOST_TURNS))


def set_aside(
    logits: torch.Tensor,  # [num_rows, vocab_size]
    table: CheckTable,
    parts: RowParts,  # of the whole vocabulary
) -> Candidates:
    num_rows, vocab_size = logits.shape
    num_tiles, chunk = parts.tokens.shape[1], chunk_size(num_rows, vocab_size)
    num_chunks = triton.cdiv(vocab_size, chunk)
    taken = parts.tokens.new_empty(num_rows)
    far = sample(logits, table, parts, taken)
    found = Candidates(
        bounds=parts.tokens.new_empty(num_rows, 2),
        sums=parts.values.new_empty(num_rows, num_chunks, NUM_SUMS),
        logits=logits.new_empty(num_rows, SET_ASIDE.value),  # a search goes through either, so both have one type
    )
    _set_aside_kernel[(num_rows, num_chunks)](
        logits,
        table.words,
        parts.values,
        far,
        taken,
        found.bounds,
        found.sums,
        found.logits,
        logits.stride(0),
        table.words.stride(0),
        vocab_size,
        num_tiles,
        num_sampled(vocab_size),
        CHUNK=chunk,
        TILES=triton.next_power_of_2(num_tiles),
        PARTS=PARTS,
        num_warps=4,
        **launch.overlap_options(),
    )
    return found
