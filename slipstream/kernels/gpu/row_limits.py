"""Where top-k, top-p and min-p cut a row off, found without sorting.

Every limit is a distance below the row's largest logit: tokens further away are removed, tokens of one distance share
one fate. sampled_bracket.py says where it probably lies, candidates.py sets aside the tokens there and proves it,
limit_search.py searches among those: with the statistics' own two reads of the logits and a part of one, for top-k and
top-p together. Limits that a sample misjudges, or that lie among more than SET_ASIDE tokens, cost more.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from slipstream.kernels.gpu import launch
from slipstream.kernels.gpu.candidates import SET_ASIDE, set_aside
from slipstream.kernels.gpu.check_table import CheckTable, Column
from slipstream.kernels.gpu.distance_keys import EVERYTHING, TOTAL, is_searched, row_law
from slipstream.kernels.gpu.kept_statistics import keep_statistics
from slipstream.kernels.gpu.launch import wait_for_inputs
from slipstream.kernels.gpu.limit_search import top_k_top_p
from slipstream.kernels.gpu.row_statistics import RowParts, load_float

LIMITED = tl.constexpr(int(Column.LIMITED))
MIN_P_REACH = tl.constexpr(int(Column.MIN_P_REACH))


@triton.jit
def _row_limits_kernel(
    logits_ptr: tl.tensor,  # [num_rows, vocab_size], rows row_stride apart
    table_ptr: tl.tensor,  # [num_rows, width] int32
    values_ptr: tl.tensor,  # [num_rows, num_tiles, 4] fp32, changed: totals of what top-k and top-p keep
    bounds_ptr: tl.tensor,  # [num_rows, 2] int32
    sums_ptr: tl.tensor,  # [num_rows, num_chunks, 4] fp32
    aside_ptr: tl.tensor,  # [num_rows, SET_ASIDE], of the logits' type
    reach_ptr: tl.tensor,  # [num_rows] fp32, out: tokens further below the largest are removed
    row_stride: int,
    width: int,
    vocab_size: int,
    num_tiles: int,
    num_chunks: int,
    TILES: tl.constexpr,
    CHUNKS: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    """reach = min(k-th least distance, least distance with weight top_p of what top-k kept, -log(min_p))."""
    wait_for_inputs(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    settings_ptr = table_ptr + row * width
    reach = EVERYTHING
    if tl.load(settings_ptr + LIMITED) == 1:
        reach = load_float(settings_ptr, MIN_P_REACH).to(tl.int32, bitcast=True)
    if is_searched(settings_ptr):
        values_ptr += row * num_tiles * 4
        largest, temperature, total, tops = row_law(settings_ptr, values_ptr, num_tiles, TILES)
        low, high = tl.load(bounds_ptr + row * 2), tl.load(bounds_ptr + row * 2 + 1)
        searched, weight = top_k_top_p(
            settings_ptr, logits_ptr + row * row_stride, aside_ptr + row * SET_ASIDE, sums_ptr + row * num_chunks * 4,
            low, high, vocab_size, num_chunks, largest, temperature, total, CHUNKS,
        )  # fmt: skip
        reach = tl.minimum(reach, searched)
        tiles = tl.arange(0, TILES)  # the weight goes to the tile of the largest logit, relative to which it is
        tile = tl.min(tl.where(tops == largest, tiles, TILES), 0)
        kept = tl.where(tiles == tile, weight, 0.0)
        tl.store(values_ptr + tiles * 4 + TOTAL, kept, mask=tiles < num_tiles)
    tl.store(reach_ptr + row, reach.to(tl.float32, bitcast=True))


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
    reach = parts.values.new_empty(num_rows)
    if table.searched:
        found = set_aside(logits, table, parts)
        num_chunks = found.sums.shape[1]
        _row_limits_kernel[(num_rows,)](
            logits,
            table.words,
            parts.values,
            found.bounds,
            found.sums,
            found.logits,
            reach,
            logits.stride(0),
            table.words.stride(0),
            vocab_size,
            num_tiles,
            num_chunks,
            TILES=triton.next_power_of_2(num_tiles),
            CHUNKS=triton.next_power_of_2(num_chunks),
            num_warps=16,
            **launch.overlap_options(),
        )
    keep_statistics(logits, table, parts, reach, tile)
    return reach
