"""Low-rank additions of many adapters in two launches, whatever rows have which: each program takes a tile of one."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from slipstream.kernels.gpu import launch
from slipstream.kernels.gpu.launch import wait_for_inputs
from slipstream.kernels.low_rank import TILE_ROWS, RowGroups

RANK_BLOCK = 16  # ranks at a time
BLOCK_K = 64  # of the inputs
BLOCK_N = 64  # of the outputs


@triton.jit
def _project_down_kernel(
    x_ptr: tl.tensor,  # [num_rows, depth]
    down_ptr: tl.tensor,  # [num_slots, rank, depth]
    slots_ptr: tl.tensor,  # [num_tiles] int32
    rows_ptr: tl.tensor,  # [num_tiles, ROWS] int32, negative: none
    low_ptr: tl.tensor,  # [num_tiles, ROWS, rank]
    depth: int,
    rank: int,
    ROWS: tl.constexpr,
    RANKS: tl.constexpr,
    BLOCK_K: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    """low[tile, i] = down[slot] . x[rows[tile, i]], zeros where there is no row."""
    wait_for_inputs(OVERLAP)
    tile = tl.program_id(0)
    ranks = tl.program_id(1) * RANKS + tl.arange(0, RANKS)
    places = tile * ROWS + tl.arange(0, ROWS)
    rows = tl.load(rows_ptr + places)
    slot = tl.load(slots_ptr + tile).to(tl.int64)
    depths = tl.arange(0, BLOCK_K)
    x_ptrs = x_ptr + rows.to(tl.int64)[:, None] * depth + depths[None, :]
    down_ptrs = down_ptr + (slot * rank + ranks)[None, :] * depth + depths[:, None]
    sums = tl.zeros([ROWS, RANKS], tl.float32)
    for start in range(0, depth, BLOCK_K):
        left = depths < depth - start
        x = tl.load(x_ptrs + start, mask=(rows >= 0)[:, None] & left[None, :], other=0.0)
        down = tl.load(down_ptrs + start, mask=(ranks < rank)[None, :] & left[:, None], other=0.0)
        sums = tl.dot(x, down, sums, input_precision="ieee")
    low = low_ptr + places[:, None] * rank + ranks[None, :]
    tl.store(low, sums.to(low_ptr.dtype.element_ty), mask=(ranks < rank)[None, :])


@triton.jit
def _add_up_kernel(
    output_ptr: tl.tensor,  # [num_rows, width]
    low_ptr: tl.tensor,  # [num_tiles, ROWS, rank]
    up_ptr: tl.tensor,  # [num_slots, width, rank]
    slots_ptr: tl.tensor,  # [num_tiles] int32
    rows_ptr: tl.tensor,  # [num_tiles, ROWS] int32, negative: none
    width: int,
    rank: int,
    ROWS: tl.constexpr,
    RANKS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    """output[rows[tile, i]] += up[slot] . low[tile, i]; a row is in one tile only, so nobody else writes it."""
    wait_for_inputs(OVERLAP)
    tile = tl.program_id(0)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    places = tile * ROWS + tl.arange(0, ROWS)
    rows = tl.load(rows_ptr + places)
    slot = tl.load(slots_ptr + tile).to(tl.int64)
    ranks = tl.arange(0, RANKS)
    low_ptrs = low_ptr + places[:, None] * rank + ranks[None, :]
    up_ptrs = up_ptr + (slot * width + columns)[None, :] * rank + ranks[:, None]
    sums = tl.zeros([ROWS, BLOCK_N], tl.float32)
    for start in range(0, rank, RANKS):
        left = ranks < rank - start
        low = tl.load(low_ptrs + start, mask=left[None, :], other=0.0)
        up = tl.load(up_ptrs + start, mask=(columns < width)[None, :] & left[:, None], other=0.0)
        sums = tl.dot(low, up, sums, input_precision="ieee")
    outputs = output_ptr + rows.to(tl.int64)[:, None] * width + columns[None, :]
    inside = (rows >= 0)[:, None] & (columns < width)[None, :]
    before = tl.load(outputs, mask=inside, other=0.0).to(tl.float32)
    tl.store(outputs, (before + sums).to(output_ptr.dtype.element_ty), mask=inside)


def add_low_rank(
    output: torch.Tensor,  # [num_rows, width], contiguous, added to in place
    x: torch.Tensor,  # [num_rows, depth]
    down: torch.Tensor,  # [num_slots, rank, depth]
    up: torch.Tensor,  # [num_slots, width, rank]
    groups: RowGroups,
) -> None:
    """output[row] += up[slot] . (down[slot] . x[row]) for each row of each group."""
    (_, rank, depth), width = down.shape, up.shape[1]
    assert output.is_contiguous()
    assert x.shape[1] == depth
    assert output.shape[1] == width
    assert up.shape[2] == rank
    x = x.contiguous()
    slots, rows = groups.tiles
    low = x.new_empty(len(slots), TILE_ROWS, rank)
    shapes = {"ROWS": TILE_ROWS, "RANKS": RANK_BLOCK, "num_warps": 4, **launch.overlap_options()}
    _project_down_kernel[(len(slots), triton.cdiv(rank, RANK_BLOCK))](
        x, down, slots, rows, low, depth, rank, BLOCK_K=BLOCK_K, **shapes
    )
    _add_up_kernel[(len(slots), triton.cdiv(width, BLOCK_N))](
        output, low, up, slots, rows, width, rank, BLOCK_N=BLOCK_N, **shapes
    )
