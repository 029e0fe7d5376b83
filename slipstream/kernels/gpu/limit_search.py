"""Finds one row's limits exactly, by halving, among the tokens set aside or else among all. One program per row.

Weights are summed as whole numbers, so that the order in which tokens were set aside changes nothing.
"""

from __future__ import annotations

import triton
import triton.language as tl

from slipstream.kernels.gpu.candidates import CANDIDATES, CANDIDATES_WEIGHT, NEARER, NEARER_WEIGHT, SET_ASIDE
from slipstream.kernels.gpu.distance_keys import EVERYTHING, OUTSIDE, TOP_K, TOP_P, load_keys
from slipstream.kernels.gpu.row_statistics import load_float

UNIT = tl.constexpr(float(1 << 40))  # of weights: the largest token's; a vocabulary of 4 million still fits 63 bits


@triton.jit
def _load(
    source_ptr: tl.tensor, first: tl.tensor, count: tl.tensor, largest: tl.tensor, temperature: tl.tensor
) -> tuple[tl.tensor, tl.tensor]:
    index = first + tl.arange(0, SET_ASIDE)
    keys, weights, _ = load_keys(source_ptr, index, index < count, largest, temperature)
    return tl.where(index < count, keys, OUTSIDE), (weights * UNIT).to(tl.int64)


@triton.jit
def _search(
    source_ptr: tl.tensor,
    count: tl.tensor,
    largest: tl.tensor,
    temperature: tl.tensor,
    by_weight: tl.tensor,
    wanted: tl.tensor,  # int64: tokens, or weight in units
    nearer: tl.tensor,  # int64: tokens nearer than all of the source
    nearer_weight: tl.tensor,  # int64: theirs
    low: tl.tensor,  # keys that the limit lies between, with the tokens within each
    high: tl.tensor,
    high_count: tl.tensor,
    high_weight: tl.tensor,
) -> tuple[tl.tensor, tl.tensor]:
    """The least key, up to tokens between, within which as much as wanted lies; and the weight within it."""
    keys, weights = _load(source_ptr, 0, count, largest, temperature)
    low_count = nearer
    while (high > low + 1) & (high_count > low_count + 1):
        middle = low + (high - low) // 2
        near_count = nearer + tl.sum((keys <= middle).to(tl.int64), 0)
        near_weight = nearer_weight + tl.sum(tl.where(keys <= middle, weights, 0), 0)
        for first in range(SET_ASIDE, count, SET_ASIDE):  # of a whole row: the rest
            other_keys, other_weights = _load(source_ptr, first, count, largest, temperature)
            near_count += tl.sum((other_keys <= middle).to(tl.int64), 0)
            near_weight += tl.sum(tl.where(other_keys <= middle, other_weights, 0), 0)
        enough = tl.where(by_weight, near_weight, near_count) >= wanted
        low = tl.where(enough, low, middle)
        low_count = tl.where(enough, low_count, near_count)
        high = tl.where(enough, middle, high)
        high_count = tl.where(enough, near_count, high_count)
        high_weight = tl.where(enough, near_weight, high_weight)
    return high, high_weight


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
    """The key that top-k and then top-p leave, and the weight within it in units."""
    chunks = tl.arange(0, CHUNKS)
    inside = chunks < num_chunks
    nearer = tl.sum(tl.load(sums_ptr + chunks * 4 + NEARER, mask=inside, other=0.0), 0)
    candidates = tl.sum(tl.load(sums_ptr + chunks * 4 + CANDIDATES, mask=inside, other=0.0), 0)
    nearer_weight = tl.sum(tl.load(sums_ptr + chunks * 4 + NEARER_WEIGHT, mask=inside, other=0.0), 0)
    weight = nearer_weight + tl.sum(tl.load(sums_ptr + chunks * 4 + CANDIDATES_WEIGHT, mask=inside, other=0.0), 0)
    top_k, top_p = tl.load(settings_ptr + TOP_K), load_float(settings_ptr, TOP_P)
    by_weight = top_k == 0
    wanted = tl.where(by_weight, top_p * total, top_k * 1.0)
    enough = (tl.where(by_weight, weight, nearer + candidates) >= wanted) | (high == EVERYTHING)
    proven = (candidates <= SET_ASIDE) & enough & ((low < 0) | (tl.where(by_weight, nearer_weight, nearer) < wanted))
    source_ptr = row_ptr
    source_count = vocab_size
    if proven:
        source_ptr = aside_ptr
        source_count = candidates.to(tl.int32)
    low = tl.where(proven, low, -1)
    reach, weight = _search(
        source_ptr, source_count, largest, temperature, by_weight,
        tl.where(by_weight, wanted * UNIT, wanted).to(tl.int64),
        tl.where(proven, nearer, 0.0).to(tl.int64),
        (tl.where(proven, nearer_weight, 0.0) * UNIT).to(tl.int64),
        low,
        tl.where(proven, high, EVERYTHING),
        tl.where(proven, nearer + candidates, vocab_size).to(tl.int64),
        (tl.where(proven, weight, total) * UNIT).to(tl.int64),
    )  # fmt: skip
    if (top_p < 1) & (by_weight == 0):
        if low >= 0:  # what top-k kept is not all among the candidates
            source_ptr = row_ptr
            source_count = vocab_size
        nothing = weight * 0
        reach, weight = _search(
            source_ptr, source_count, largest, temperature, top_p < 1, (weight * top_p).to(tl.int64),
            nothing, nothing, reach * 0 - 1, reach, nothing + vocab_size, weight,
        )  # fmt: skip
    return reach, weight
