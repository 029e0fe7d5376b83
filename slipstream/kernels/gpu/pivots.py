"""Counts a row's tokens, and their weight, within each of PIVOTS distances below its largest logit, by all of the GPU.

Twice: first for evenly spaced distances, then for some between those two that the row's first limit lies between.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from slipstream.kernels.gpu.check_table import CheckTable, Column
from slipstream.kernels.gpu.row_statistics import RowParts, distances, load_float

TOP_K = tl.constexpr(int(Column.TOP_K))
TEMPERATURE = tl.constexpr(int(Column.TEMPERATURE))
TOP_P = tl.constexpr(int(Column.TOP_P))
LARGEST, TOTAL = tl.constexpr(0), tl.constexpr(1)
EVERYTHING = tl.constexpr(0x7F800000)  # the bits of infinity: a limit that removes nothing
PIVOTS = tl.constexpr(32)
PIVOT_STEP = tl.constexpr(0.75)  # 32 of these reach 24: what lies beyond, of a 150k vocabulary, weighs nothing
BLOCK = tl.constexpr(256)


@triton.jit
def row_law(
    settings_ptr: tl.tensor, values_ptr: tl.tensor, num_tiles: tl.tensor, TILES: tl.constexpr
) -> tuple[tl.tensor, ...]:
    """The row's largest logit, temperature and total weight, and the largest logit of each tile."""
    tiles = tl.arange(0, TILES)
    inside = tiles < num_tiles
    tops = tl.load(values_ptr + tiles * 4 + LARGEST, mask=inside, other=float("-inf"))
    totals = tl.load(values_ptr + tiles * 4 + TOTAL, mask=inside, other=0.0)
    largest = tl.max(tops, 0)
    temperature = load_float(settings_ptr, TEMPERATURE)
    return largest, temperature, tl.sum(totals * tl.exp(-distances(tops, largest, temperature)), 0), tops


@triton.jit
def within(
    source_ptr: tl.tensor,
    start: tl.tensor,
    end: tl.tensor,
    largest: tl.tensor,
    temperature: tl.tensor,
    pivots: tl.tensor,
) -> tuple[tl.tensor, ...]:
    """How many of the logits source[start:end] lie within each pivot (the bits of a distance), and what they weigh."""
    counts = tl.zeros([PIVOTS, BLOCK], tl.float32)
    weights = tl.zeros([PIVOTS, BLOCK], tl.float32)
    for first in range(start, end, BLOCK):
        index = first + tl.arange(0, BLOCK)
        logits = tl.load(source_ptr + index, mask=index < end, other=float("-inf")).to(tl.float32)
        distance = distances(logits, largest, temperature)
        keys = tl.where(index < end, distance.to(tl.int32, bitcast=True), 0x7FFFFFFF)
        near = keys[None, :] <= pivots[:, None]
        counts += tl.where(near, 1.0, 0.0)
        weights += tl.where(near, tl.exp(-distance)[None, :], 0.0)
    return tl.sum(counts, 1), tl.sum(weights, 1)


@triton.jit
def even_pivots() -> tl.tensor:
    slots = tl.arange(0, PIVOTS)
    return tl.where(slots == PIVOTS - 1, EVERYTHING, ((slots + 1) * PIVOT_STEP).to(tl.int32, bitcast=True))


@triton.jit
def pivots_between(low: tl.tensor, high: tl.tensor) -> tl.tensor:
    """The last one is high itself."""
    return low + ((high - low).to(tl.int64) * (tl.arange(0, PIVOTS) + 1) // PIVOTS).to(tl.int32)


@triton.jit
def narrow(
    pivots: tl.tensor,
    counts: tl.tensor,
    weights: tl.tensor,
    wanted: tl.tensor,
    by_weight: tl.tensor,
    low: tl.tensor,
    low_count: tl.tensor,
    low_weight: tl.tensor,
) -> tuple[tl.tensor, ...]:
    """The two pivots that the limit lies between: within `low` lies less than wanted, within `high` enough, or all."""
    slots = tl.arange(0, PIVOTS)
    enough = tl.where(by_weight, weights, counts) >= wanted
    chosen = tl.min(tl.where(enough, slots, PIVOTS - 1), 0)  # rounding may keep all from being enough: all are kept
    at, below = slots == chosen, slots == chosen - 1
    low = tl.where(chosen > 0, tl.sum(tl.where(below, pivots, 0), 0), low)
    low_count = tl.where(chosen > 0, tl.sum(tl.where(below, counts, 0.0), 0), low_count)
    low_weight = tl.where(chosen > 0, tl.sum(tl.where(below, weights, 0.0), 0), low_weight)
    high = tl.sum(tl.where(at, pivots, 0), 0)
    high_count = tl.sum(tl.where(at, counts, 0.0), 0)
    return low, low_count, low_weight, high, high_count, tl.sum(tl.where(at, weights, 0.0), 0)


@triton.jit
def load_sums(sums_ptr: tl.tensor, num_chunks: tl.tensor, CHUNKS: tl.constexpr) -> tuple[tl.tensor, ...]:
    """Counts and weights within each pivot, of the whole row."""
    chunks = tl.arange(0, CHUNKS)[:, None]
    at = sums_ptr + chunks * 2 * PIVOTS + tl.arange(0, PIVOTS)[None, :]
    counts = tl.load(at, mask=chunks < num_chunks, other=0.0)
    return tl.sum(counts, 0), tl.sum(tl.load(at + PIVOTS, mask=chunks < num_chunks, other=0.0), 0)


@triton.jit
def first_bracket(
    settings_ptr: tl.tensor, sums_ptr: tl.tensor, num_chunks: tl.tensor, total: tl.tensor, CHUNKS: tl.constexpr
) -> tuple[tl.tensor, ...]:
    """Where the row's first limit lies among the even pivots: top-k's, or else top-p's."""
    counts, weights = load_sums(sums_ptr, num_chunks, CHUNKS)
    top_k = tl.load(settings_ptr + TOP_K)
    by_weight = top_k == 0
    wanted = tl.where(by_weight, load_float(settings_ptr, TOP_P) * total, top_k * 1.0)
    low, low_count, low_weight, high, high_count, high_weight = narrow(
        even_pivots(), counts, weights, wanted, by_weight, -1, 0.0, 0.0
    )
    return wanted, by_weight, low, low_count, low_weight, high, high_count, high_weight


@triton.jit
def second_bracket(
    settings_ptr: tl.tensor,
    even_ptr: tl.tensor,
    fine_ptr: tl.tensor,
    num_chunks: tl.tensor,
    total: tl.tensor,
    CHUNKS: tl.constexpr,
) -> tuple[tl.tensor, ...]:
    """Where the row's first limit lies among the fine pivots."""
    wanted, by_weight, low, low_count, low_weight, high, _, _ = first_bracket(
        settings_ptr, even_ptr, num_chunks, total, CHUNKS
    )
    counts, weights = load_sums(fine_ptr, num_chunks, CHUNKS)
    low, low_count, low_weight, high, high_count, high_weight = narrow(
        pivots_between(low, high), counts, weights, wanted, by_weight, low, low_count, low_weight
    )
    return wanted, by_weight, low, low_count, low_weight, high, high_count, high_weight


@triton.jit
def is_searched(settings_ptr: tl.tensor) -> tl.tensor:
    return (tl.load(settings_ptr + TOP_K) > 0) | (load_float(settings_ptr, TOP_P) < 1.0)


@triton.jit
def _pivot_sums_kernel(
    logits_ptr: tl.tensor,  # [num_rows, vocab_size], rows row_stride apart
    table_ptr: tl.tensor,  # [num_rows, width] int32
    values_ptr: tl.tensor,  # [num_rows, num_tiles, 4] fp32
    even_ptr: tl.tensor,  # [num_rows, num_chunks, 2, PIVOTS] fp32: counts and weights; out unless FINE
    fine_ptr: tl.tensor,  # the same shape, out if FINE
    row_stride: int,
    width: int,
    vocab_size: int,
    num_tiles: int,
    num_chunks: int,
    FINE: tl.constexpr,
    CHUNK: tl.constexpr,
    TILES: tl.constexpr,
    CHUNKS: tl.constexpr,
) -> None:
    """sums[pivot] = number and weight of the chunk's tokens within the pivot."""
    row = tl.program_id(0).to(tl.int64)
    chunk = tl.program_id(1)
    settings_ptr = table_ptr + row * width
    if is_searched(settings_ptr) == 0:
        return
    largest, temperature, total, _ = row_law(settings_ptr, values_ptr + row * num_tiles * 4, num_tiles, TILES)
    sums_ptr = even_ptr
    pivots = even_pivots()
    if FINE:
        _, _, low, _, _, high, _, _ = first_bracket(
            settings_ptr, even_ptr + row * num_chunks * 2 * PIVOTS, num_chunks, total, CHUNKS
        )
        pivots = pivots_between(low, high)
        sums_ptr = fine_ptr
    start = chunk * CHUNK
    counts, weights = within(
        logits_ptr + row * row_stride, start, min(start + CHUNK, vocab_size), largest, temperature, pivots
    )
    at = sums_ptr + (row * num_chunks + chunk) * 2 * PIVOTS + tl.arange(0, PIVOTS)
    tl.store(at, counts)
    tl.store(at + PIVOTS, weights)


def chunk_size(num_rows: int, vocab_size: int) -> int:
    """Tokens that one program counts: as many as leave work for all of the GPU."""
    return 8192 if num_rows * vocab_size >= 264 * 8192 else 2048


def pivot_sums(
    logits: torch.Tensor,  # [num_rows, vocab_size]
    table: CheckTable,
    parts: RowParts,  # of the whole vocabulary
) -> torch.Tensor:
    """[2, num_rows, num_chunks, 2, PIVOTS] fp32, of even and of fine pivots; unwritten in rows that need none."""
    num_rows, vocab_size = logits.shape
    chunk = chunk_size(num_rows, vocab_size)
    num_tiles, num_chunks = parts.tokens.shape[1], triton.cdiv(vocab_size, chunk)
    sums = parts.values.new_empty(2, num_rows, num_chunks, 2, PIVOTS.value)
    for fine in (False, True) if table.searched else ():
        _pivot_sums_kernel[(num_rows, num_chunks)](
            logits,
            table.words,
            parts.values,
            sums[0],
            sums[1],
            logits.stride(0),
            table.words.stride(0),
            vocab_size,
            num_tiles,
            num_chunks,
            FINE=fine,
            CHUNK=chunk,
            TILES=triton.next_power_of_2(num_tiles),
            CHUNKS=triton.next_power_of_2(num_chunks),
            num_warps=8,
        )
    return sums
