"""What the phases of a draft step work on: tensors by their roles, and the sizes a kernel is compiled for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import triton
import triton.language as tl

MOST_ROWS = tl.constexpr(64)  # that scratch memory is for


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Of the model, and of what one program does in each phase."""

    layers: int
    hidden: int
    chunks: int  # of the hidden size, whose products are made side by side and added up
    depth: int  # of one, a power of two ...
    rest: int  # ... and another for what is left of the hidden size
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    block_size: int  # tokens of a KV block
    tile_rows: int  # taken at once; more rows are taken in turns
    sharers: int  # query heads that attention has room for: no fewer than a tensor core's product has rows
    splits: int  # parts of each context, a power of two
    keys: int  # taken in one turn of attention
    pair_tile: int  # rotated pairs of a head that one program makes
    output_tile: int  # columns that one program adds attention to, for one head
    unit_tile: int  # units of the feed-forward block that one program makes
    down_depth: int  # units that one program adds up ...
    down_tile: int  # ... for so many columns
    precision: str  # of products of fp32


class Rows(NamedTuple):
    """One token each of so many sequences or branches."""

    token_ids: Any  # [num_rows]
    context_lens: Any  # [num_rows]: tokens in the cache after the step; 0 marks an inert row, which writes no KV
    tables: Any  # [num_rows, max_blocks]
    max_blocks: Any
    num_rows: Any  # as a float: a kernel is compiled anew for an integer of 1, and for multiples of 16


class Weights(NamedTuple):
    """Of all layers, one after another."""

    embedding: Any  # [vocab, hidden]
    input_norm: Any  # [layers, hidden]
    qkv: Any  # [layers, (heads + 2 * kv_heads) * head_dim, hidden]
    output: Any  # [layers, hidden, heads * head_dim]
    mlp_norm: Any  # [layers, hidden]
    gate_up: Any  # [layers, 2 * inner, hidden]
    down: Any  # [layers, hidden, inner]
    norm: Any  # [hidden]
    cos: Any  # [positions, head_dim / 2]
    sin: Any  # the same shape
    eps: Any


class Cache(NamedTuple):
    key: Any  # [layers, num_blocks, block_size, kv_heads, head_dim]
    value: Any  # the same shape (`values` would be the tuple itself to Triton)
    layer_stride: Any


class Scratch(NamedTuple):
    """What one phase leaves to the next."""

    residual: Any  # [num_rows, hidden] fp32: the stream, added to in place
    query: Any  # [num_rows, heads, head_dim]
    partial: Any  # [num_rows, heads, splits, head_dim] fp32
    log_weights: Any  # [num_rows, heads, splits] fp32: log2 of each split's total weight
    activated: Any  # [num_rows, inner]
    hidden: Any  # [num_rows, hidden], what the step is for


@triton.jit
def row_count(rows: Rows) -> tl.tensor:
    return tl.cast(rows.num_rows, tl.int32)


@triton.jit
def tile_rows(first_row: tl.tensor, rows: Rows, SIZES: tl.constexpr) -> tuple[tl.tensor, tl.tensor]:
    """The rows of one turn, and which of them exist."""
    row = first_row + tl.arange(0, SIZES.tile_rows)
    return row, row < rows.num_rows
