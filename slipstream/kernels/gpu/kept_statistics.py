"""A second look at rows with limits, by all of the GPU: the weight and the best token of what their limits keep.

Only where limits do not tell by themselves: where noise chooses, and where min-p has the last word.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from slipstream.kernels.gpu import launch
from slipstream.kernels.gpu.check_table import CheckTable, Column, RowKind
from slipstream.kernels.gpu.distance_keys import LARGEST, TEMPERATURE, TOTAL
from slipstream.kernels.gpu.launch import wait_for_inputs
from slipstream.kernels.gpu.row_statistics import RowParts, distances, load_float, residual_noise

KIND = tl.constexpr(int(Column.KIND))
LIMITED = tl.constexpr(int(Column.LIMITED))
MIN_P_REACH = tl.constexpr(int(Column.MIN_P_REACH))
MATCH = tl.constexpr(int(RowKind.MATCH))
BEST = tl.constexpr(3)


@triton.jit
def _kept_statistics_kernel(
    logits_ptr: tl.tensor,  # [num_rows, vocab_size], rows row_stride apart
    table_ptr: tl.tensor,  # [num_rows, width] int32
    values_ptr: tl.tensor,  # [num_rows, num_tiles, 4] fp32, changed: totals and best scores
    tokens_ptr: tl.tensor,  # [num_rows, num_tiles] int32, changed likewise
    reach_ptr: tl.tensor,  # [num_rows] fp32: of rows that were searched; out for the others
    row_stride: int,
    width: int,
    vocab_size: int,
    num_tiles: int,
    SEARCHED: tl.constexpr,
    TILE: tl.constexpr,
    TILES: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    """total = sum of exp((x - top) / T), best = max of (x - top) / T + noise, over the tile's x within reach."""
    wait_for_inputs(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1)
    settings_ptr = table_ptr + row * width
    limited = tl.load(settings_ptr + LIMITED) == 1
    min_p_reach = tl.where(limited, load_float(settings_ptr, MIN_P_REACH), float("inf"))
    reach = min_p_reach
    if SEARCHED:
        reach = tl.load(reach_ptr + row)
    elif tile == 0:
        tl.store(reach_ptr + row, reach)
    matched = tl.load(settings_ptr + KIND) == MATCH
    if limited & (matched | (min_p_reach <= reach) & (min_p_reach < float("inf"))):
        tiles = tl.arange(0, TILES)
        part_ptr = values_ptr + row * num_tiles * 4
        tops = tl.load(part_ptr + tiles * 4 + LARGEST, mask=tiles < num_tiles, other=float("-inf"))
        largest, top = tl.max(tops, 0), tl.max(tl.where(tiles == tile, tops, float("-inf")), 0)
        temperature = load_float(settings_ptr, TEMPERATURE)
        total, best, where = 0.0, float("-inf"), 0
        if distances(top, largest, temperature) <= reach:
            columns = tile * TILE + tl.arange(0, TILE)
            logits = tl.load(
                logits_ptr + row * row_stride + columns, mask=columns < vocab_size, other=float("-inf")
            ).to(tl.float32)
            kept = (columns < vocab_size) & (distances(logits, largest, temperature) <= reach)
            scores = tl.where(kept, -distances(logits, top, temperature), float("-inf"))
            total = tl.sum(tl.exp(scores), 0)
            if matched:
                scores += residual_noise(settings_ptr, tile * TILE, TILE)
                best, where = tl.max(scores, 0, return_indices=True)
        tl.store(part_ptr + tile * 4 + TOTAL, total)
        tl.store(part_ptr + tile * 4 + BEST, best)
        tl.store(tokens_ptr + row * num_tiles + tile, tl.minimum(tile * TILE + where, vocab_size - 1))


def keep_statistics(
    logits: torch.Tensor,  # [num_rows, vocab_size], the whole vocabulary
    table: CheckTable,  # limited
    parts: RowParts,  # changed
    reach: torch.Tensor,  # [num_rows] fp32; written here unless the table is searched
    tile: int,  # that the parts were made with
) -> None:
    num_rows, vocab_size = logits.shape
    num_tiles = parts.tokens.shape[1]
    _kept_statistics_kernel[(num_rows, num_tiles)](
        logits,
        table.words,
        parts.values,
        parts.tokens,
        reach,
        logits.stride(0),
        table.words.stride(0),
        vocab_size,
        num_tiles,
        SEARCHED=table.searched,
        TILE=tile,
        TILES=triton.next_power_of_2(num_tiles),
        num_warps=tile // 512,
        **launch.overlap_options(),
    )
