"""One read of the logits: each row's largest value, its total weight, and what greedy or matched rows choose.

Works on a slice of the vocabulary. The parts of several slices, one after another, are the parts of the whole.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from slipstream.kernels.gpu import launch
from slipstream.kernels.gpu.check_table import CheckTable, Column, RowKind
from slipstream.kernels.gpu.launch import wait_for_inputs
from slipstream.kernels.noise import gumbel_block
from slipstream.sampling.philox import Stream

KIND = tl.constexpr(int(Column.KIND))
DRAFT_ID = tl.constexpr(int(Column.DRAFT_ID))
POSITION = tl.constexpr(int(Column.POSITION))
SAMPLE_INDEX = tl.constexpr(int(Column.SAMPLE_INDEX))
SEED_LOW = tl.constexpr(int(Column.SEED_LOW))
SEED_HIGH = tl.constexpr(int(Column.SEED_HIGH))
LIMITED = tl.constexpr(int(Column.LIMITED))
TEMPERATURE = tl.constexpr(int(Column.TEMPERATURE))
MATCH = tl.constexpr(int(RowKind.MATCH))
RESIDUAL = tl.constexpr(int(Stream.RESIDUAL))
LARGEST, TOTAL, DRAFTED, BEST = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2), tl.constexpr(3)
NUM_VALUES = 4
NOWHERE = float("-inf")


@dataclass(frozen=True, slots=True)
class RowParts:
    """What one tile of one row says. Tiles of other slices of the vocabulary may follow on the middle axis."""

    values: torch.Tensor  # [num_rows, num_tiles, 4] fp32: largest logit, weight, drafted token's logit, best score
    tokens: torch.Tensor  # [num_rows, num_tiles] int32: the token of the best score


@triton.jit
def load_float(row_ptr: tl.tensor, COLUMN: tl.constexpr) -> tl.tensor:
    """A table word that holds the bits of an fp32."""
    return tl.load(row_ptr + COLUMN).to(tl.float32, bitcast=True)


@triton.jit
def residual_noise(row_ptr: tl.tensor, first_token: tl.tensor, TILE: tl.constexpr) -> tl.tensor:
    """Gumbel noise of tokens first_token..first_token + TILE - 1, first_token divisible by 4: [TILE] fp32."""
    low = tl.load(row_ptr + SEED_LOW).to(tl.uint32, bitcast=True).to(tl.uint64)
    high = tl.load(row_ptr + SEED_HIGH).to(tl.uint32, bitcast=True).to(tl.uint64)
    position = tl.load(row_ptr + POSITION).to(tl.uint32, bitcast=True)
    sample_index = tl.load(row_ptr + SAMPLE_INDEX).to(tl.uint32, bitcast=True)
    blocks = (first_token // 4 + tl.arange(0, TILE // 4)).to(tl.uint32)
    g0, g1, g2, g3 = gumbel_block(low | (high << 32), blocks, position, RESIDUAL, sample_index)
    return tl.reshape(tl.join(tl.join(g0, g2), tl.join(g1, g3)), [TILE])


@triton.jit
def distances(logits: tl.tensor, largest: tl.tensor, temperature: tl.tensor) -> tl.tensor:
    """(largest - logit) / temperature, >= 0: how far below the top of the shaped law each token lies."""
    base = tl.where(largest == float("-inf"), 0.0, largest)
    return (base - logits) / temperature


@triton.jit
def _row_statistics_kernel(
    logits_ptr: tl.tensor,  # [num_rows, vocab_size], rows row_stride apart
    table_ptr: tl.tensor,  # [num_rows, width] int32
    values_ptr: tl.tensor,  # [num_rows, num_tiles, 4] fp32, out
    tokens_ptr: tl.tensor,  # [num_rows, num_tiles] int32, out
    row_stride: int,
    width: int,
    vocab_size: int,
    first_token: int,
    num_tiles: int,
    TILE: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    """largest = max x; total = sum of exp((x - largest) / T); best = max of (x - largest) / T + noise, or of x."""
    wait_for_inputs(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1)
    row_ptr = table_ptr + row * width
    columns = tile * TILE + tl.arange(0, TILE)
    logits = tl.load(logits_ptr + row * row_stride + columns, mask=columns < vocab_size, other=float("-inf")).to(
        tl.float32
    )
    largest = tl.max(logits, 0)
    scores = -distances(logits, largest, load_float(row_ptr, TEMPERATURE))
    total = tl.sum(tl.exp(scores), 0)
    if (tl.load(row_ptr + KIND) == MATCH) & (tl.load(row_ptr + LIMITED) == 0):
        scores += residual_noise(row_ptr, first_token + tile * TILE, TILE)
    best, where = tl.max(scores, 0, return_indices=True)
    drafted = tl.load(row_ptr + DRAFT_ID) - first_token
    part = row * num_tiles + tile
    if (drafted >= tile * TILE) & (drafted < min(tile * TILE + TILE, vocab_size)):
        tl.store(values_ptr + part * 4 + DRAFTED, tl.load(logits_ptr + row * row_stride + drafted).to(tl.float32))
    else:
        tl.store(values_ptr + part * 4 + DRAFTED, float("-inf"))
    tl.store(values_ptr + part * 4 + LARGEST, largest)
    tl.store(values_ptr + part * 4 + TOTAL, total)
    tl.store(values_ptr + part * 4 + BEST, best)
    tl.store(
        tokens_ptr + part, first_token + tl.minimum(tile * TILE + where, vocab_size - 1)
    )  # a row of NaN: any token


def tile_size(num_rows: int, vocab_size: int) -> int:
    """Small tiles until they fill the GPU twice; large ones leave less to combine."""
    return 4096 if num_rows * vocab_size >= 264 * 4096 else 1024


def row_statistics(
    logits: torch.Tensor,  # [num_rows, vocab_size], this slice of the vocabulary
    table: CheckTable,
    first_token: int = 0,  # of the slice; divisible by 4, as noise comes in fours
) -> RowParts:
    num_rows, vocab_size = logits.shape
    if num_rows != table.num_rows:
        raise ValueError(f"target_logits has {num_rows} rows; the checks need {table.num_rows}")
    assert first_token % 4 == 0, "noise comes in fours of tokens"
    assert logits.stride(1) == 1
    tile = tile_size(num_rows, vocab_size)
    num_tiles = triton.cdiv(vocab_size, tile)
    parts = RowParts(
        values=logits.new_empty(num_rows, num_tiles, NUM_VALUES, dtype=torch.float32),
        tokens=logits.new_empty(num_rows, num_tiles, dtype=torch.int32),
    )
    _row_statistics_kernel[(num_rows, num_tiles)](
        logits,
        table.words,
        parts.values,
        parts.tokens,
        logits.stride(0),
        table.words.stride(0),
        vocab_size,
        first_token,
        num_tiles,
        TILE=tile,
        num_warps=tile // 512,
        **launch.overlap_options(),
    )
    return parts
