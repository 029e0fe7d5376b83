"""Decides each row from its statistics: whether its draft token stands, and what takes its place. Reads no logits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from slipstream.kernels.gpu import launch
from slipstream.kernels.gpu.check_table import CheckTable, Column, RowKind
from slipstream.kernels.gpu.launch import wait_for_inputs
from slipstream.kernels.gpu.row_statistics import RowParts, distances, load_float

KIND = tl.constexpr(int(Column.KIND))
DRAFT_ID = tl.constexpr(int(Column.DRAFT_ID))
TEMPERATURE = tl.constexpr(int(Column.TEMPERATURE))
UNIFORM = tl.constexpr(int(Column.UNIFORM))
DRAFT_PROB = tl.constexpr(int(Column.DRAFT_PROB))
RATIO = tl.constexpr(int(RowKind.RATIO))
LARGEST, TOTAL, DRAFTED, BEST = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2), tl.constexpr(3)
UNDRAWN = tl.constexpr(-1)  # stands for the row's token until the row is looked at again


@dataclass(frozen=True, slots=True)
class DecidedRows:
    stands: torch.Tensor  # [num_rows] int32: 1 where the draft token is accepted
    chosen: torch.Tensor  # [num_rows] int32: the token that takes its place otherwise, or UNDRAWN
    law: torch.Tensor  # [num_rows, 2] fp32: largest logit, total weight relative to it


@triton.jit
def _decide_rows_kernel(
    table_ptr: tl.tensor,  # [num_rows, width] int32
    values_ptr: tl.tensor,  # [num_rows, num_tiles, 4] fp32
    tokens_ptr: tl.tensor,  # [num_rows, num_tiles] int32
    reach_ptr: tl.tensor,  # [num_rows] fp32; not read unless LIMITED
    stands_ptr: tl.tensor,  # [num_rows] int32, out
    chosen_ptr: tl.tensor,  # [num_rows] int32, out
    law_ptr: tl.tensor,  # [num_rows, 2] fp32, out
    width: int,
    num_tiles: int,
    LIMITED: tl.constexpr,
    TILES: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    """stands = (chosen == draft) where matched, u * draft_prob < target_prob where the law decides."""
    wait_for_inputs(OVERLAP)
    row = tl.program_id(0)
    row_ptr = table_ptr + row * width
    tiles = tl.arange(0, TILES)
    inside = tiles < num_tiles
    part_ptr = values_ptr + (row * num_tiles + tiles) * 4
    tops = tl.load(part_ptr + LARGEST, mask=inside, other=float("-inf"))
    totals = tl.load(part_ptr + TOTAL, mask=inside, other=0.0)
    drafted = tl.max(tl.load(part_ptr + DRAFTED, mask=inside, other=float("-inf")), 0)
    largest = tl.max(tops, 0)
    temperature = load_float(row_ptr, TEMPERATURE)
    below = distances(tops, largest, temperature)
    total = tl.sum(totals * tl.exp(-below), 0)
    tl.store(law_ptr + row * 2, largest)
    tl.store(law_ptr + row * 2 + 1, total)
    kind = tl.load(row_ptr + KIND)
    if kind < RATIO:
        scores = tl.load(part_ptr + BEST, mask=inside, other=float("-inf")) - below
        _, tile = tl.max(scores, 0, return_indices=True)
        chosen = tl.load(tokens_ptr + row * num_tiles + tl.minimum(tile, num_tiles - 1))  # NaN has no largest
        tl.store(chosen_ptr + row, chosen)
        tl.store(stands_ptr + row, (chosen == tl.load(row_ptr + DRAFT_ID)).to(tl.int32))
    else:
        distance = distances(drafted, largest, temperature)
        target_prob = tl.exp(-distance) / total
        if LIMITED:
            target_prob = tl.where(distance <= tl.load(reach_ptr + row), target_prob, 0.0)
        accepted = load_float(row_ptr, UNIFORM) * load_float(row_ptr, DRAFT_PROB) < target_prob
        tl.store(chosen_ptr + row, UNDRAWN)
        tl.store(stands_ptr + row, ((kind == RATIO) & accepted).to(tl.int32))


def decide_rows(
    table: CheckTable,
    parts: RowParts,  # of the whole vocabulary
    reach: torch.Tensor | None,  # [num_rows] fp32, from row_limits
) -> DecidedRows:
    num_rows, num_tiles = parts.tokens.shape
    words = parts.tokens.new_empty(2, num_rows)
    decided = DecidedRows(words[0], words[1], parts.values.new_empty(num_rows, 2))
    _decide_rows_kernel[(num_rows,)](
        table.words,
        parts.values,
        parts.tokens,
        parts.values if reach is None else reach,
        decided.stands,
        decided.chosen,
        decided.law,
        table.words.stride(0),
        num_tiles,
        LIMITED=reach is not None,
        TILES=triton.next_power_of_2(num_tiles),
        num_warps=1,
        **launch.overlap_options(),
    )
    return decided
