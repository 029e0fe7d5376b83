"""How far a token lies below its row's largest logit, as integers that are ordered alike, and what it weighs.

Limits are searched for among these keys. Knows one row at a time; nothing of how a row is cut up.
"""

from __future__ import annotations

import triton
import triton.language as tl

from slipstream.kernels.gpu.check_table import Column
from slipstream.kernels.gpu.row_statistics import distances, load_float

TOP_K = tl.constexpr(int(Column.TOP_K))
TEMPERATURE = tl.constexpr(int(Column.TEMPERATURE))
TOP_P = tl.constexpr(int(Column.TOP_P))
LARGEST, TOTAL = tl.constexpr(0), tl.constexpr(1)
EVERYTHING = tl.constexpr(0x7F800000)  # the bits of infinity: a limit that removes nothing
OUTSIDE = tl.constexpr(0x7FFFFFFF)  # the key of what is no token, or one that something else has removed


@triton.jit
def is_searched(settings_ptr: tl.tensor) -> tl.tensor:
    return (tl.load(settings_ptr + TOP_K) > 0) | (load_float(settings_ptr, TOP_P) < 1.0)


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
def keys_of(logits: tl.tensor, largest: tl.tensor, temperature: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """The keys of logits, fp32, and their weights."""
    distance = distances(logits, largest, temperature)
    keys = distance.to(tl.int32, bitcast=True)
    return tl.where(keys < EVERYTHING, keys, OUTSIDE), tl.exp(-distance)


@triton.jit
def load_keys(
    source_ptr: tl.tensor, index: tl.tensor, inside: tl.tensor, largest: tl.tensor, temperature: tl.tensor
) -> tuple[tl.tensor, ...]:
    """The keys of source[index], their weights, and the logits themselves."""
    logits = tl.load(source_ptr + index, mask=inside, other=float("-inf")).to(tl.float32)
    keys, weights = keys_of(logits, largest, temperature)
    return keys, weights, logits
