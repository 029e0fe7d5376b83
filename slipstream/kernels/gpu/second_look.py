"""Decides the rows from their statistics, and looks once more at the one row per sequence that ends it, if need be.

Works on a slice of the vocabulary, like row_statistics: what other slices' tiles found joins on the middle axis.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from slipstream.exchange import LAW_TOTAL
from slipstream.kernels.gpu import launch
from slipstream.kernels.gpu.check_table import NUM_COLUMNS, CheckTable, Column, RowKind
from slipstream.kernels.gpu.launch import wait_for_inputs
from slipstream.kernels.gpu.row_statistics import RowParts, distances, load_float, residual_noise, tile_size

KIND = tl.constexpr(int(Column.KIND))
DRAFT_ID = tl.constexpr(int(Column.DRAFT_ID))
LAW_LENGTH = tl.constexpr(int(Column.LAW_LENGTH))
TEMPERATURE = tl.constexpr(int(Column.TEMPERATURE))
UNIFORM = tl.constexpr(int(Column.UNIFORM))
DRAFT_PROB = tl.constexpr(int(Column.DRAFT_PROB))
RATIO = tl.constexpr(int(RowKind.RATIO))
LAW_START = tl.constexpr(NUM_COLUMNS)
LAW_SUM = tl.constexpr(float(LAW_TOTAL))
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
        chosen = tl.load(tokens_ptr + row * num_tiles + tile)
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


@triton.jit
def _last_row(
    starts_ptr: tl.tensor, stands_ptr: tl.tensor, sequence: tl.tensor, MAX_ROWS: tl.constexpr
) -> tuple[tl.tensor, ...]:
    """How many draft tokens of the sequence stand before the first that does not, and that one's row.

    A padded sequence owns no row; it looks at the one where its rows would start.
    """
    first = tl.load(starts_ptr + sequence)
    num_rows = tl.load(starts_ptr + sequence + 1) - first
    offsets = tl.arange(0, MAX_ROWS)
    stands = tl.load(stands_ptr + first + offsets, mask=offsets < num_rows, other=0)
    num_accepted = tl.min(tl.where(stands == 0, offsets, num_rows - 1), 0)
    num_accepted = tl.maximum(tl.minimum(num_accepted, num_rows - 1), 0)
    return num_accepted, first + num_accepted


@triton.jit
def _second_look_kernel(
    logits_ptr: tl.tensor,  # [num_rows, vocab_size], rows row_stride apart
    table_ptr: tl.tensor,  # [num_rows, width] int32
    starts_ptr: tl.tensor,  # [num_seqs + 1] int32
    stands_ptr: tl.tensor,  # [num_rows] int32
    chosen_ptr: tl.tensor,  # [num_rows] int32
    law_ptr: tl.tensor,  # [num_rows, 2] fp32
    reach_ptr: tl.tensor,  # [num_rows] fp32; not read unless LIMITED
    scores_ptr: tl.tensor,  # [num_seqs, num_tiles, 2] fp32, out: best of the residual, best of the target's law
    tokens_ptr: tl.tensor,  # [num_seqs, num_tiles, 2] int32, out
    row_stride: int,
    width: int,
    vocab_size: int,
    first_token: int,
    num_tiles: int,
    law_width: int,
    LIMITED: tl.constexpr,
    MAX_ROWS: tl.constexpr,
    TILE: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    """scores: log(max(0, target_prob - draft_prob)) + noise where a law was rejected, log(target weight) + noise."""
    wait_for_inputs(OVERLAP)
    sequence = tl.program_id(0)
    tile = tl.program_id(1)
    _, row = _last_row(starts_ptr, stands_ptr, sequence, MAX_ROWS)
    if tl.load(chosen_ptr + row) != UNDRAWN:
        return
    row_ptr = table_ptr + row * width
    columns = tile * TILE + tl.arange(0, TILE)
    logits = tl.load(
        logits_ptr + row.to(tl.int64) * row_stride + columns, mask=columns < vocab_size, other=float("-inf")
    ).to(tl.float32)
    distance = distances(logits, tl.load(law_ptr + row * 2), load_float(row_ptr, TEMPERATURE))
    if LIMITED:
        distance = tl.where(distance <= tl.load(reach_ptr + row), distance, float("inf"))
    noise = residual_noise(row_ptr, first_token + tile * TILE, TILE)
    best, where = tl.max(noise - distance, 0, return_indices=True)
    part = (sequence * num_tiles + tile) * 2
    tl.store(scores_ptr + part + 1, best)
    tl.store(tokens_ptr + part + 1, first_token + tile * TILE + where)
    best_residual, where_residual = float("-inf"), 0
    if tl.load(row_ptr + KIND) == RATIO:
        tokens = first_token + columns
        counts = tl.zeros([TILE], tl.float32)
        for index in range(tl.load(row_ptr + LAW_LENGTH)):
            token = tl.load(row_ptr + LAW_START + index)
            if (token >= first_token + tile * TILE) & (token < first_token + tile * TILE + TILE):
                count = tl.load(row_ptr + LAW_START + law_width + index).to(tl.float32)
                counts = tl.where(tokens == token, count, counts)
        residual = tl.exp(-distance) / tl.load(law_ptr + row * 2 + 1) - counts / LAW_SUM
        scores = tl.where(residual > 0, tl.log(tl.where(residual > 0, residual, 1.0)) + noise, float("-inf"))
        best_residual, where_residual = tl.max(scores, 0, return_indices=True)
    tl.store(scores_ptr + part, best_residual)
    tl.store(tokens_ptr + part, first_token + tile * TILE + where_residual)


@triton.jit
def _verdicts_kernel(
    starts_ptr: tl.tensor,  # [num_seqs + 1] int32
    stands_ptr: tl.tensor,  # [num_rows] int32
    chosen_ptr: tl.tensor,  # [num_rows] int32
    scores_ptr: tl.tensor,  # [num_seqs, num_tiles, 2] fp32
    tokens_ptr: tl.tensor,  # [num_seqs, num_tiles, 2] int32
    verdicts_ptr: tl.tensor,  # [num_seqs, 2] int32, out
    num_tiles: int,
    MAX_ROWS: tl.constexpr,
    TILES: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    """verdict = (draft tokens accepted, the token after them); an empty residual means the target's own law."""
    wait_for_inputs(OVERLAP)
    sequence = tl.program_id(0)
    num_accepted, row = _last_row(starts_ptr, stands_ptr, sequence, MAX_ROWS)
    token = tl.load(chosen_ptr + row)
    if token == UNDRAWN:
        tiles = tl.arange(0, TILES)
        parts = (sequence * num_tiles + tiles) * 2
        residual, where = tl.max(
            tl.load(scores_ptr + parts, mask=tiles < num_tiles, other=float("-inf")), 0, return_indices=True
        )
        law = 0
        if residual == float("-inf"):
            law = 1
            _, where = tl.max(
                tl.load(scores_ptr + parts + 1, mask=tiles < num_tiles, other=float("-inf")), 0, return_indices=True
            )
        token = tl.load(tokens_ptr + (sequence * num_tiles + where) * 2 + law)
    tl.store(verdicts_ptr + sequence * 2, num_accepted)
    tl.store(verdicts_ptr + sequence * 2 + 1, token)


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


def second_look(
    logits: torch.Tensor,  # [num_rows, vocab_size], this slice of the vocabulary
    table: CheckTable,
    decided: DecidedRows,
    reach: torch.Tensor | None,
    first_token: int = 0,
) -> RowParts:
    """The best tokens of each sequence's last row: values and tokens [num_seqs, num_tiles, 2]."""
    vocab_size = logits.shape[1]
    tile = tile_size(table.num_seqs, vocab_size)
    num_tiles = triton.cdiv(vocab_size, tile)
    found = RowParts(
        values=logits.new_empty(table.num_seqs, num_tiles, 2, dtype=torch.float32),
        tokens=logits.new_empty(table.num_seqs, num_tiles, 2, dtype=torch.int32),
    )
    _second_look_kernel[(table.num_seqs, num_tiles)](
        logits,
        table.words,
        table.starts,
        decided.stands,
        decided.chosen,
        decided.law,
        decided.law if reach is None else reach,
        found.values,
        found.tokens,
        logits.stride(0),
        table.words.stride(0),
        vocab_size,
        first_token,
        num_tiles,
        table.law_width,
        LIMITED=reach is not None,
        MAX_ROWS=triton.next_power_of_2(table.max_rows),
        TILE=tile,
        num_warps=tile // 512,
        **launch.overlap_options(),
    )
    return found


def verdicts(table: CheckTable, decided: DecidedRows, found: RowParts) -> torch.Tensor:
    """[num_seqs, 2] int32: draft tokens accepted, and the token after them."""
    num_tiles = found.tokens.shape[1]
    output = decided.chosen.new_empty(table.num_seqs, 2)
    _verdicts_kernel[(table.num_seqs,)](
        table.starts,
        decided.stands,
        decided.chosen,
        found.values,
        found.tokens,
        output,
        num_tiles,
        MAX_ROWS=triton.next_power_of_2(table.max_rows),
        TILES=triton.next_power_of_2(num_tiles),
        num_warps=1,
        **launch.overlap_options(),
    )
    return output
