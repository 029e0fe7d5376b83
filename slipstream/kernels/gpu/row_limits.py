"""Where top-k, top-p and min-p cut a row off, found without sorting.

Every limit is a distance below the row's largest logit: tokens further away are removed, tokens of one distance share
one fate. pivots.py narrows it down, candidates.py sets aside the tokens that are left, and one program per row searches
among those. With the statistics' own these are four reads of the logits, for top-k and top-p together, most of them
from the L2 cache. Only limits among more than SET_ASIDE candidates cost more.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from slipstream.kernels.gpu.candidates import SET_ASIDE, nearest_candidate, set_aside
from slipstream.kernels.gpu.check_table import CheckTable, Column, RowKind
from slipstream.kernels.gpu.pivots import (
    EVERYTHING,
    PIVOTS,
    is_searched,
    narrow,
    pivot_sums,
    pivots_between,
    row_law,
    second_bracket,
    within,
)
from slipstream.kernels.gpu.row_statistics import RowParts, distances, load_float, residual_noise

KIND = tl.constexpr(int(Column.KIND))
LIMITED = tl.constexpr(int(Column.LIMITED))
TOP_P = tl.constexpr(int(Column.TOP_P))
MIN_P_REACH = tl.constexpr(int(Column.MIN_P_REACH))
MATCH = tl.constexpr(int(RowKind.MATCH))
LARGEST, TOTAL, BEST = tl.constexpr(0), tl.constexpr(1), tl.constexpr(3)


@triton.jit
def _search(
    source_ptr: tl.tensor,
    count: tl.tensor,
    largest: tl.tensor,
    temperature: tl.tensor,
    wanted: tl.tensor,
    by_weight: tl.tensor,
    base_count: tl.tensor,
    base_weight: tl.tensor,  # what lies nearer than all of the source
    low: tl.tensor,
    low_count: tl.tensor,
    low_weight: tl.tensor,
    high: tl.tensor,
    high_count: tl.tensor,
    high_weight: tl.tensor,
) -> tuple[tl.tensor, ...]:
    """The least distance (its bits) within which as much as wanted lies, and the weight within it."""
    while (high > low + 1) & (high_count - low_count > 1.5):
        pivots = pivots_between(low, high)
        counts, weights = within(source_ptr, 0, count, largest, temperature, pivots)
        low, low_count, low_weight, high, high_count, high_weight = narrow(
            pivots, counts + base_count, weights + base_weight, wanted, by_weight, low, low_count, low_weight
        )
    return high, high_weight


@triton.jit
def _top_k_top_p(
    settings_ptr: tl.tensor,
    row_ptr: tl.tensor,
    aside_ptr: tl.tensor,
    even_ptr: tl.tensor,
    fine_ptr: tl.tensor,
    vocab_size: tl.tensor,
    num_chunks: tl.tensor,
    largest: tl.tensor,
    temperature: tl.tensor,
    total: tl.tensor,
    CHUNKS: tl.constexpr,
) -> tuple[tl.tensor, ...]:
    """The distance (its bits) that top-k and then top-p leave, and the weight within it."""
    wanted, by_weight, low, low_count, low_weight, high, high_count, high_weight = second_bracket(
        settings_ptr, even_ptr, fine_ptr, num_chunks, total, CHUNKS
    )
    nearest, fits = nearest_candidate(low, low_count, high_count)
    all_aside = fits & (nearest == -1)
    base_count = tl.where(fits & (nearest != -1), low_count, 0.0)
    base_weight = tl.where(fits & (nearest != -1), low_weight, 0.0)
    source_ptr, source_count = row_ptr, vocab_size
    if fits:
        source_ptr = aside_ptr
        source_count = (high_count - base_count).to(tl.int32)
    reach, total = _search(
        source_ptr, source_count, largest, temperature, wanted, by_weight,
        base_count, base_weight, low, low_count, low_weight, high, high_count, high_weight,
    )  # fmt: skip
    top_p = load_float(settings_ptr, TOP_P)
    if (top_p < 1) & (by_weight == 0):
        if all_aside == 0:
            source_ptr = row_ptr
            source_count = vocab_size
        zero = total * 0
        reach, total = _search(
            source_ptr, source_count, largest, temperature, top_p * total, top_p < 1, zero, zero,
            reach * 0 - 1, zero, zero, reach, zero + float("inf"), total,
        )  # fmt: skip
    return reach, total


@triton.jit
def _row_limits_kernel(
    logits_ptr: tl.tensor,  # [num_rows, vocab_size], rows row_stride apart
    table_ptr: tl.tensor,  # [num_rows, width] int32
    values_ptr: tl.tensor,  # [num_rows, num_tiles, 4] fp32, changed: totals and best scores of what is kept
    tokens_ptr: tl.tensor,  # [num_rows, num_tiles] int32, changed likewise
    even_ptr: tl.tensor,  # [num_rows, num_chunks, 2, PIVOTS] fp32
    fine_ptr: tl.tensor,  # the same shape
    aside_ptr: tl.tensor,  # [num_rows, SET_ASIDE], scratch, of the logits' type
    reach_ptr: tl.tensor,  # [num_rows] fp32, out: tokens further below the largest are removed
    row_stride: int,
    width: int,
    vocab_size: int,
    num_tiles: int,
    num_chunks: int,
    TILE: tl.constexpr,
    TILES: tl.constexpr,
    CHUNKS: tl.constexpr,
) -> None:
    """reach = min(k-th least distance, least distance with weight top_p of what top-k kept, -log(min_p))."""
    row = tl.program_id(0).to(tl.int64)
    settings_ptr = table_ptr + row * width
    if tl.load(settings_ptr + LIMITED) == 0:
        tl.store(reach_ptr + row, float("inf"))
        return
    row_ptr = logits_ptr + row * row_stride
    tiles = tl.arange(0, TILES)
    inside = tiles < num_tiles
    parts = row * num_tiles + tiles
    largest, temperature, total, tops = row_law(settings_ptr, values_ptr + row * num_tiles * 4, num_tiles, TILES)
    reach = EVERYTHING
    if is_searched(settings_ptr):
        sums = row * num_chunks * 2 * PIVOTS
        reach, total = _top_k_top_p(
            settings_ptr, row_ptr, aside_ptr + row * SET_ASIDE, even_ptr + sums, fine_ptr + sums,
            vocab_size, num_chunks, largest, temperature, total, CHUNKS,
        )  # fmt: skip
    min_p_reach = load_float(settings_ptr, MIN_P_REACH).to(tl.int32, bitcast=True)
    again = (tl.load(settings_ptr + KIND) == MATCH) | (min_p_reach < reach)
    reach = tl.minimum(reach, min_p_reach)
    tl.store(reach_ptr + row, reach.to(tl.float32, bitcast=True))
    tl.store(values_ptr + parts * 4 + LARGEST, largest, mask=inside)
    if again:  # for the weight and the best of what is kept, in the tiles that keep something
        total = 0.0
        best_score, best_token = float("-inf"), 0
        for tile in range(num_tiles):
            top = tl.sum(tl.where(tiles == tile, tops, 0.0), 0)
            if distances(top, largest, temperature).to(tl.int32, bitcast=True) <= reach:
                columns = tile * TILE + tl.arange(0, TILE)
                logits = tl.load(row_ptr + columns, mask=columns < vocab_size, other=float("-inf")).to(tl.float32)
                distance = distances(logits, largest, temperature)
                kept = (columns < vocab_size) & (distance.to(tl.int32, bitcast=True) <= reach)
                total += tl.sum(tl.where(kept, tl.exp(-distance), 0.0), 0)
                scores = tl.where(kept, residual_noise(settings_ptr, tile * TILE, TILE) - distance, float("-inf"))
                score, where = tl.max(scores, 0, return_indices=True)
                if score > best_score:
                    best_score = score
                    best_token = tile * TILE + where
        tl.store(values_ptr + parts * 4 + BEST, best_score, mask=inside)
        tl.store(tokens_ptr + parts, best_token, mask=inside)
    tl.store(values_ptr + parts * 4 + TOTAL, tl.where(tiles == 0, total, 0.0), mask=inside)


def row_limits(
    logits: torch.Tensor,  # [num_rows, vocab_size], the whole vocabulary
    table: CheckTable,
    parts: RowParts,  # changed: limited rows' totals and best scores become those of what is kept
    tile: int,  # that the parts were made with
) -> torch.Tensor:
    """How far below its row's largest logit, in shaped units, a token may lie: [num_rows] fp32, inf without limits."""
    num_rows, vocab_size = logits.shape
    num_tiles = parts.tokens.shape[1]
    assert num_tiles == triton.cdiv(vocab_size, tile), "limits need the whole vocabulary on one GPU"
    sums = pivot_sums(logits, table, parts)
    num_chunks = sums.shape[2]
    reach = parts.values.new_empty(num_rows)
    _row_limits_kernel[(num_rows,)](
        logits,
        table.words,
        parts.values,
        parts.tokens,
        sums[0],
        sums[1],
        set_aside(logits, table, parts, sums),
        reach,
        logits.stride(0),
        table.words.stride(0),
        vocab_size,
        num_tiles,
        num_chunks,
        TILE=tile,
        TILES=triton.next_power_of_2(num_tiles),
        CHUNKS=triton.next_power_of_2(num_chunks),
        num_warps=8,
    )
    return reach
