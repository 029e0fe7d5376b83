"""Keys that rank a row's tokens: ordered as their values are, equal ones by token. Knows no logits and no settings."""

from __future__ import annotations

import triton
import triton.language as tl

NO_KEY = tl.constexpr(-(1 << 63))


@triton.jit
def rank_key(values: tl.tensor, columns: tl.tensor) -> tl.tensor:
    """int64 that is ordered as fp32 values are, and among equal ones by falling column."""
    bits = values.to(tl.int32, bitcast=True)
    ordered = tl.where(bits >= 0, bits, bits ^ 0x7FFFFFFF).to(tl.int64)
    return (ordered << 32) | (0x7FFFFFFF - columns).to(tl.int64)


@triton.jit
def value_of(keys: tl.tensor) -> tl.tensor:
    ordered = (keys >> 32).to(tl.int32)
    return tl.where(ordered >= 0, ordered, ordered ^ 0x7FFFFFFF).to(tl.float32, bitcast=True)


@triton.jit
def column_of(keys: tl.tensor) -> tl.tensor:
    """int64; of NO_KEY, and of what lies beyond the vocabulary, no column of it."""
    return 0x7FFFFFFF - (keys & 0x7FFFFFFF)


@triton.jit
def first_keys(keys: tl.tensor, COUNT: tl.constexpr) -> tl.tensor:
    """[COUNT]: the largest keys, largest first. One maximum each: a sort is no faster, and takes 17 s to build."""
    places = tl.arange(0, COUNT)
    first = tl.full([COUNT], NO_KEY, tl.int64)
    for i in range(COUNT):
        largest = tl.max(keys, 0)
        first = tl.where(places == i, largest, first)
        keys = tl.where(keys == largest, NO_KEY, keys)
    return first
