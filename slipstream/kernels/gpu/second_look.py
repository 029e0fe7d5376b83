"""Looks once more at the one row per sequence that ends it, if need be, and says the verdicts.

Works on a slice of the vocabulary, like row_statistics: what other slices' tiles found joins on the middle axis.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from slipstream.exchange import LAW_TOTAL
from slipstream.kernels.gpu import launch
from slipstream.kernels.gpu.check_table import NUM_COLUMNS, CheckTable, Column, RowKind
from slipstream.kernels.gpu.decided_rows import UNDRAWN, DecidedRows
from slipstream.kernels.gpu.launch import wait_for_inputs
from slipstream.kernels.gpu.row_statistics import RowParts, distances, load_float, residual_noise, tile_size

KIND = tl.constexpr(int(Column.KIND))
LAW_LENGTH = tl.constexpr(int(Column.LAW_LENGTH))
TEMPERATURE = tl.constexpr(int(Column.TEMPERATURE))
RATIO = tl.constexpr(int(RowKind.RATIO))
LAW_START = tl.constexpr(NUM_COLUMNS)
LAW_SUM = tl.constexpr(float(LAW_TOTAL))


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
    tl.store(tokens_ptr + part + 1, first_token + tl.minimum(tile * TILE + where, vocab_size - 1))
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
    tl.store(tokens_ptr + part, first_token + tl.minimum(tile * TILE + where_residual, vocab_size - 1))


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
        token = tl.load(tokens_ptr + (sequence * num_tiles + tl.minimum(where, num_tiles - 1)) * 2 + law)
    tl.store(verdicts_ptr + sequence * 2, num_accepted)
    tl.store(verdicts_ptr + sequence * 2 + 1, token)


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


def verdicts(
    table: CheckTable, decided: DecidedRows, found: RowParts, into: torch.Tensor | None = None
) -> torch.Tensor:
    """[num_seqs, 2] int32: draft tokens accepted, and the token after them."""
    num_tiles = found.tokens.shape[1]
    output = decided.chosen.new_empty(table.num_seqs, 2) if into is None else into
    assert output.is_contiguous()
    assert output.dtype == torch.int32
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
