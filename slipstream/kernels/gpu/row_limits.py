"""Where top-k, top-p and min-p cut a row off, found without sorting. One program per row; others leave at once.

Every limit is a distance below the row's largest logit: tokens further away are removed, tokens of one distance share
one fate. The search counts how many tokens, and how much weight, lie within each of PIVOTS distances in one read, keeps
the bracket that holds the limit, copies the tokens in it aside once they are few, and goes on among those alone. Top-k
then takes three reads of the logits with the statistics' one, top-p after it one more: they come from the L2 cache.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from slipstream.kernels.gpu.check_table import CheckTable, Column, RowKind
from slipstream.kernels.gpu.row_statistics import RowParts, distances, load_float, residual_noise

KIND = tl.constexpr(int(Column.KIND))
LIMITED = tl.constexpr(int(Column.LIMITED))
TOP_K = tl.constexpr(int(Column.TOP_K))
TEMPERATURE = tl.constexpr(int(Column.TEMPERATURE))
TOP_P = tl.constexpr(int(Column.TOP_P))
MIN_P_REACH = tl.constexpr(int(Column.MIN_P_REACH))
MATCH = tl.constexpr(int(RowKind.MATCH))
LARGEST, TOTAL, BEST = tl.constexpr(0), tl.constexpr(1), tl.constexpr(3)
EVERYTHING = tl.constexpr(0x7F800000)  # the bits of infinity: a limit that removes nothing
PIVOTS = 32
FIRST_REACH = 24.0  # the first pivots lie evenly up to here: e^-24 of a 150k vocabulary weighs nothing
BLOCK = 512
SET_ASIDE = 8192  # tokens of a bracket that fit in the scratch


@triton.jit
def _within(source_ptr, count, largest, temperature, pivots, PIVOTS: tl.constexpr, BLOCK: tl.constexpr):
    """How many of the source's logits lie within each pivot (the bits of a distance), and what they weigh."""
    counts = tl.zeros([PIVOTS, BLOCK], tl.float32)
    weights = tl.zeros([PIVOTS, BLOCK], tl.float32)
    for start in range(0, count, BLOCK):
        index = start + tl.arange(0, BLOCK)
        logits = tl.load(source_ptr + index, mask=index < count, other=float("-inf")).to(tl.float32)
        distance = distances(logits, largest, temperature)
        keys = tl.where(index < count, distance.to(tl.int32, bitcast=True), 0x7FFFFFFF)
        near = keys[None, :] <= pivots[:, None]
        counts += tl.where(near, 1.0, 0.0)
        weights += tl.where(near, tl.exp(-distance)[None, :], 0.0)
    return tl.sum(counts, 1), tl.sum(weights, 1)


@triton.jit
def _set_aside(source_ptr, aside_ptr, count, largest, temperature, low, high, BLOCK: tl.constexpr):
    """Copies the logits in the bracket (low, high] to the scratch."""
    copied = 0
    for start in range(0, count, BLOCK):
        index = start + tl.arange(0, BLOCK)
        logits = tl.load(source_ptr + index, mask=index < count, other=float("-inf")).to(tl.float32)
        keys = distances(logits, largest, temperature).to(tl.int32, bitcast=True)
        chosen = (index < count) & (keys > low) & (keys <= high)
        ranks = tl.cumsum(chosen.to(tl.int32), 0)
        tl.store(aside_ptr + copied + ranks - 1, logits, mask=chosen)
        copied += tl.sum(chosen.to(tl.int32), 0)
    tl.debug_barrier()  # the other threads read what this one wrote
    return copied


@triton.jit
def _search(
    row_ptr,
    aside_ptr,
    vocab_size,
    largest,
    temperature,
    wanted,  # tokens, or weight
    reach,  # nothing beyond this distance (its bits) counts
    BY_WEIGHT: tl.constexpr,
    PIVOTS: tl.constexpr,
    BLOCK: tl.constexpr,
    SET_ASIDE: tl.constexpr,
    FIRST_REACH: tl.constexpr,
):
    """The least distance (its bits) within which as much as wanted lies, and the weight within it.

    Keeps a bracket: within `low` lies less than wanted, within `high` enough, or all there is.
    """
    slots = tl.arange(0, PIVOTS)
    low, high = -1, reach
    low_count, low_weight = 0.0, 0.0
    high_count, high_weight = vocab_size * 1.0, float("inf")
    aside_count, aside_weight = 0.0, 0.0  # what lies nearer than the tokens set aside
    aside = -1  # how many those are
    pivots = ((slots + 1) * (FIRST_REACH / PIVOTS)).to(tl.float32).to(tl.int32, bitcast=True)
    pivots = tl.where(slots == PIVOTS - 1, reach, tl.minimum(pivots, reach))
    unresolved = True
    while unresolved:
        if aside >= 0:
            counts, weights = _within(aside_ptr, aside, largest, temperature, pivots, PIVOTS, BLOCK)
            counts += aside_count
            weights += aside_weight
        else:
            counts, weights = _within(row_ptr, vocab_size, largest, temperature, pivots, PIVOTS, BLOCK)
        enough = (weights if BY_WEIGHT else counts) >= wanted
        enough = enough | (slots == PIVOTS - 1)  # rounding may keep even all from being enough: then all are kept
        chosen = tl.min(tl.where(enough, slots, PIVOTS - 1), 0)
        below = slots == chosen - 1
        at = slots == chosen
        if chosen > 0:
            low = tl.sum(tl.where(below, pivots, 0), 0)
            low_count = tl.sum(tl.where(below, counts, 0.0), 0)
            low_weight = tl.sum(tl.where(below, weights, 0.0), 0)
        high = tl.sum(tl.where(at, pivots, 0), 0)
        high_count = tl.sum(tl.where(at, counts, 0.0), 0)
        high_weight = tl.sum(tl.where(at, weights, 0.0), 0)
        unresolved = (high - low > 1) & (high_count - low_count > 1.5)
        if unresolved & (aside < 0) & (high_count - low_count <= SET_ASIDE):
            aside = _set_aside(row_ptr, aside_ptr, vocab_size, largest, temperature, low, high, BLOCK)
            aside_count = low_count
            aside_weight = low_weight
        span = (high - low).to(tl.int64)
        pivots = low + (span * (slots + 1) // PIVOTS).to(tl.int32)  # the last one is high itself
    return high, high_weight


@triton.jit
def _row_limits_kernel(
    logits_ptr: tl.tensor,  # [num_rows, vocab_size], rows row_stride apart
    table_ptr: tl.tensor,  # [num_rows, width] int32
    values_ptr: tl.tensor,  # [num_rows, num_tiles, 4] fp32, changed: totals and best scores of what is kept
    tokens_ptr: tl.tensor,  # [num_rows, num_tiles] int32, changed likewise
    aside_ptr: tl.tensor,  # [num_rows, SET_ASIDE] fp32, scratch
    reach_ptr: tl.tensor,  # [num_rows] fp32, out: tokens further below the largest are removed
    row_stride: int,
    width: int,
    vocab_size: int,
    num_tiles: int,
    TILE: tl.constexpr,
    TILES: tl.constexpr,
    PIVOTS: tl.constexpr,
    BLOCK: tl.constexpr,
    SET_ASIDE: tl.constexpr,
    FIRST_REACH: tl.constexpr,
):
    """reach = min(k-th least distance, least distance with weight top_p of what top-k kept, -log(min_p))."""
    row = tl.program_id(0).to(tl.int64)
    settings_ptr = table_ptr + row * width
    if tl.load(settings_ptr + LIMITED) == 0:
        tl.store(reach_ptr + row, float("inf"))
        return
    row_ptr = logits_ptr + row * row_stride
    aside_ptr += row * SET_ASIDE
    tiles = tl.arange(0, TILES)
    parts = row * num_tiles + tiles
    tops = tl.load(values_ptr + parts * 4 + LARGEST, mask=tiles < num_tiles, other=float("-inf"))
    totals = tl.load(values_ptr + parts * 4 + TOTAL, mask=tiles < num_tiles, other=0.0)
    largest = tl.max(tops, 0)
    temperature = load_float(settings_ptr, TEMPERATURE)
    total = tl.sum(totals * tl.exp(-distances(tops, largest, temperature)), 0)
    reach = EVERYTHING
    top_k = tl.load(settings_ptr + TOP_K)
    if top_k > 0:
        reach, total = _search(
            row_ptr, aside_ptr, vocab_size, largest, temperature, top_k * 1.0, reach,
            False, PIVOTS, BLOCK, SET_ASIDE, FIRST_REACH,
        )  # fmt: skip
    top_p = load_float(settings_ptr, TOP_P)
    if top_p < 1:
        reach, total = _search(
            row_ptr, aside_ptr, vocab_size, largest, temperature, top_p * total, reach,
            True, PIVOTS, BLOCK, SET_ASIDE, FIRST_REACH,
        )  # fmt: skip
    min_p_reach = load_float(settings_ptr, MIN_P_REACH).to(tl.int32, bitcast=True)
    again = (tl.load(settings_ptr + KIND) == MATCH) | (min_p_reach < reach)
    reach = tl.minimum(reach, min_p_reach)
    tl.store(reach_ptr + row, reach.to(tl.float32, bitcast=True))
    tl.store(values_ptr + parts * 4 + TOTAL, tl.where(tiles == 0, total, 0.0), mask=tiles < num_tiles)
    tl.store(values_ptr + parts * 4 + LARGEST, largest, mask=tiles < num_tiles)
    if again:
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
        tl.store(values_ptr + parts * 4 + TOTAL, tl.where(tiles == 0, total, 0.0), mask=tiles < num_tiles)
        tl.store(values_ptr + parts * 4 + BEST, best_score, mask=tiles < num_tiles)
        tl.store(tokens_ptr + parts, best_token, mask=tiles < num_tiles)


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
    reach = logits.new_empty(num_rows, dtype=torch.float32)
    _row_limits_kernel[(num_rows,)](
        logits,
        table.words,
        parts.values,
        parts.tokens,
        logits.new_empty(num_rows, SET_ASIDE, dtype=torch.float32),
        reach,
        logits.stride(0),
        table.words.stride(0),
        vocab_size,
        num_tiles,
        TILE=tile,
        TILES=triton.next_power_of_2(num_tiles),
        PIVOTS=PIVOTS,
        BLOCK=BLOCK,
        SET_ASIDE=SET_ASIDE,
        FIRST_REACH=FIRST_REACH,
        num_warps=16,
    )
    return reach
