"""Finds one row's limits exactly among the tokens set aside, or else among all of them. One program per row.

Each turn asks at PIVOTS distances at once how much lies within, then draws the bounds together to tokens that are
there: logits that are alike end a search as soon as no others are between. Amounts are summed as whole numbers, so that
the order in which tokens were set aside changes nothing.
"""

from __future__ import annotations

import triton
import triton.language as tl

from slipstream.kernels.gpu.candidates import CANDIDATES, CANDIDATES_WEIGHT, NEARER, NEARER_WEIGHT, SET_ASIDE
from slipstream.kernels.gpu.distance_keys import EVERYTHING, OUTSIDE, TOP_K, TOP_P, load_keys
from slipstream.kernels.gpu.row_statistics import load_float

PIVOTS = tl.constexpr(16)
NARROW_BLOCK, WIDE_BLOCK = tl.constexpr(1024), tl.constexpr(512)  # tokens looked at together
NARROW_UNITS = tl.constexpr(float(1 << 30))  # that the weights among few tokens come to, in 32 bits
WIDE_UNITS = tl.constexpr(float(1 << 40))  # of the largest token; 4 million like it still fit 63 bits
TWO_OCTAVES = tl.constexpr(1 << 24)  # of keys


@triton.jit
def _load(
    source_ptr: tl.tensor,
    first: tl.tensor,
    count: tl.tensor,
    largest: tl.tensor,
    temperature: tl.tensor,
    by_weight: tl.tensor,
    unit: tl.tensor,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """Keys, and what each token counts for: its weight in units, or 1."""
    index = first + tl.arange(0, BLOCK)
    keys, weights, _ = load_keys(source_ptr, index, index < count, largest, temperature)
    amounts = tl.where(by_weight, weights * unit, 1.0)
    return tl.where(index < count, keys, OUTSIDE), amounts.to(tl.int64) if WIDE else amounts.to(tl.int32)


@triton.jit
def _pivots(low: tl.tensor, high: tl.tensor) -> tl.tensor:
    """Even in distance while the bounds are octaves apart, then even in keys, which is the same; low < pivot < high."""
    slots = tl.arange(0, PIVOTS)
    nearest = tl.where(low < 0, 0, low).to(tl.float32, bitcast=True)
    furthest = high.to(tl.float32, bitcast=True)
    by_distance = (nearest + (furthest - nearest) * ((slots + 1) / (PIVOTS + 1.0))).to(tl.int32, bitcast=True)
    by_key = low + (slots + 1) * tl.cdiv(high - low, PIVOTS + 1)
    octaves = (high - low > TWO_OCTAVES) & (high < EVERYTHING)
    return tl.minimum(tl.where(octaves, by_distance, by_key), high - 1)


@triton.jit
def _search(
    source_ptr: tl.tensor,
    count: tl.tensor,
    largest: tl.tensor,
    temperature: tl.tensor,
    by_weight: tl.tensor,
    unit: tl.tensor,
    wanted: tl.tensor,  # of the source: tokens, or weight in units
    low: tl.tensor,  # keys that the limit lies between
    high: tl.tensor,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
) -> tl.tensor:
    """The least key within which as much as wanted lies."""
    keys, amounts = _load(source_ptr, 0, count, largest, temperature, by_weight, unit, WIDE, BLOCK)
    while high > low + 1:
        pivots = _pivots(low, high)
        within = tl.sum(tl.where(keys[:, None] <= pivots[None, :], amounts[:, None], 0), 0)
        for first in range(BLOCK, count, BLOCK):
            more_keys, more = _load(source_ptr, first, count, largest, temperature, by_weight, unit, WIDE, BLOCK)
            within += tl.sum(tl.where(more_keys[:, None] <= pivots[None, :], more[:, None], 0), 0)
        enough = within >= wanted
        low = tl.maximum(low, tl.max(tl.where(enough, low, pivots), 0))
        high = tl.minimum(high, tl.min(tl.where(enough, pivots, high), 0))
        between = (keys > low) & (keys <= high)
        nearest = tl.min(tl.where(between, keys, high), 0)
        furthest = tl.max(tl.where(between, keys, low + 1), 0)
        for first in range(BLOCK, count, BLOCK):
            more_keys, _ = _load(source_ptr, first, count, largest, temperature, by_weight, unit, WIDE, BLOCK)
            between = (more_keys > low) & (more_keys <= high)
            nearest = tl.minimum(nearest, tl.min(tl.where(between, more_keys, high), 0))
            furthest = tl.maximum(furthest, tl.max(tl.where(between, more_keys, low + 1), 0))
        low, high = nearest - 1, furthest
    return high


@triton.jit
def _weight_within(
    source_ptr: tl.tensor,
    count: tl.tensor,
    largest: tl.tensor,
    temperature: tl.tensor,
    unit: tl.tensor,
    reach: tl.tensor,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
) -> tl.tensor:
    """In units."""
    weight = reach.to(tl.int64) * 0 if WIDE else reach * 0
    for first in range(0, count, BLOCK):
        keys, weights = _load(source_ptr, first, count, largest, temperature, count > 0, unit, WIDE, BLOCK)
        weight += tl.sum(tl.where(keys <= reach, weights, 0), 0)
    return weight


@triton.jit
def _search_all(
    row_ptr: tl.tensor,
    vocab_size: tl.tensor,
    largest: tl.tensor,
    temperature: tl.tensor,
    top_p: tl.tensor,
    by_weight: tl.tensor,
    wanted: tl.tensor,  # fp32
    reach: tl.tensor,  # key that top-k leaves, where that is known; else any
    reach_known: tl.tensor,
) -> tuple[tl.tensor, tl.tensor]:
    """Among all tokens of the row: slow, and never wrong. The key that top-k and then top-p leave, and its weight."""
    unit = largest * 0 + WIDE_UNITS
    if not reach_known:
        reach = _search(
            row_ptr, vocab_size, largest, temperature, by_weight, unit,
            tl.where(by_weight, wanted * WIDE_UNITS, wanted).to(tl.int64),
            vocab_size * 0 - 1, vocab_size * 0 + EVERYTHING, True, WIDE_BLOCK,
        )  # fmt: skip
    weight = _weight_within(row_ptr, vocab_size, largest, temperature, unit, reach, True, WIDE_BLOCK)
    if (top_p < 1) & (by_weight == 0):
        reach = _search(
            row_ptr, vocab_size, largest, temperature, top_p < 1, unit,
            (weight * top_p).to(tl.int64), vocab_size * 0 - 1, reach, True, WIDE_BLOCK,
        )  # fmt: skip
        weight = _weight_within(row_ptr, vocab_size, largest, temperature, unit, reach, True, WIDE_BLOCK)
    return reach, weight.to(tl.float32) / WIDE_UNITS


@triton.jit
def top_k_top_p(
    settings_ptr: tl.tensor,
    row_ptr: tl.tensor,
    aside_ptr: tl.tensor,  # [SET_ASIDE], the row's
    sums_ptr: tl.tensor,  # [num_chunks, 4] fp32, the row's
    low: tl.tensor,
    high: tl.tensor,
    vocab_size: tl.tensor,
    num_chunks: tl.tensor,
    largest: tl.tensor,
    temperature: tl.tensor,
    total: tl.tensor,
    CHUNKS: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """The key that top-k and then top-p leave, and the weight within it, the largest token's being 1."""
    chunks = tl.arange(0, CHUNKS)
    inside = chunks < num_chunks
    nearer = tl.sum(tl.load(sums_ptr + chunks * 4 + NEARER, mask=inside, other=0.0), 0)
    candidates = tl.sum(tl.load(sums_ptr + chunks * 4 + CANDIDATES, mask=inside, other=0.0), 0)
    nearer_weight = tl.sum(tl.load(sums_ptr + chunks * 4 + NEARER_WEIGHT, mask=inside, other=0.0), 0)
    among = tl.sum(tl.load(sums_ptr + chunks * 4 + CANDIDATES_WEIGHT, mask=inside, other=0.0), 0)
    top_k, top_p = tl.load(settings_ptr + TOP_K), load_float(settings_ptr, TOP_P)
    by_weight = top_k == 0
    wanted = tl.where(by_weight, top_p * total, top_k * 1.0)
    found = tl.where(by_weight, nearer_weight + among, nearer + candidates)
    proven = (candidates <= SET_ASIDE) & ((found >= wanted) | (high == EVERYTHING))
    proven &= (low < 0) | (tl.where(by_weight, nearer_weight, nearer) < wanted)
    reach = high
    weight = total
    also_top_p = (top_p < 1) & (by_weight == 0)
    if proven:
        count = candidates.to(tl.int32)
        unit = NARROW_UNITS / tl.maximum(among, 1e-20)
        missing = tl.where(by_weight, (wanted - nearer_weight) * unit, wanted - nearer)
        reach = _search(
            aside_ptr, count, largest, temperature, by_weight, unit,
            tl.minimum(missing, 2.0e9).to(tl.int32), low, high, False, NARROW_BLOCK,
        )  # fmt: skip
        kept = _weight_within(aside_ptr, count, largest, temperature, unit, reach, False, NARROW_BLOCK)
        if also_top_p & (low < 0):  # all that top-k kept is among the candidates
            reach = _search(
                aside_ptr, count, largest, temperature, top_p < 1, unit, (kept * top_p).to(tl.int32),
                low, reach, False, NARROW_BLOCK,
            )  # fmt: skip
            kept = _weight_within(aside_ptr, count, largest, temperature, unit, reach, False, NARROW_BLOCK)
        weight = nearer_weight + kept.to(tl.float32) / unit
    if (not proven) | (also_top_p & (low >= 0)):
        reach, weight = _search_all(row_ptr, vocab_size, largest, temperature, top_p, by_weight, wanted, reach, proven)
    return reach, weight
