"""Says between which distances a row's first limit surely lies, nearly always, from a sample of its tokens.

Top-k is a question of how many lie near, top-p of how little lies far: both are estimated at PIVOTS distances, with a
margin. Whoever uses a bracket proves it by exact sums over the row, and searches everything if it was wrong.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from slipstream.kernels.gpu import launch
from slipstream.kernels.gpu.check_table import CheckTable
from slipstream.kernels.gpu.distance_keys import TOP_K, TOP_P, is_searched, load_keys, row_law
from slipstream.kernels.gpu.launch import wait_for_inputs
from slipstream.kernels.gpu.row_statistics import RowParts, load_float

PIVOTS = tl.constexpr(64)
PARTS = 8  # programs that share a row's sample
RUN = tl.constexpr(32)  # neighbours that are sampled together: one line of memory
BLOCK = tl.constexpr(128)
BLOCKS = tl.constexpr(8)  # of one part
SAMPLE = int(PARTS * BLOCK.value * BLOCKS.value)
MARGIN = tl.constexpr(3.0)  # standard deviations, taken too large
UNSEEN = tl.constexpr(3.0)  # tokens that a sample may have missed by bad luck where it found none
FITTING = tl.constexpr(4096)  # estimated tokens that are taken whole, though fewer would do


@triton.jit
def _pivots(by_weight: tl.tensor, top_p: tl.tensor, total: tl.tensor, vocab_size: tl.tensor) -> tl.tensor:
    """Evenly up to where top-p's limit must lie, as vocab_size * exp(-distance) bounds what is far; else by octaves."""
    slots = tl.arange(0, PIVOTS)
    furthest = tl.log(vocab_size / ((1.0 - top_p) * total))
    even = (slots + 1) * (furthest / (PIVOTS - 1))
    octaves = tl.exp2(slots * 0.25 - 4.0)
    return tl.where(slots == PIVOTS - 1, float("inf"), tl.where(by_weight, even, octaves))


@triton.jit
def _sample_kernel(
    logits_ptr: tl.tensor,  # [num_rows, vocab_size], rows row_stride apart
    table_ptr: tl.tensor,  # [num_rows, width] int32
    values_ptr: tl.tensor,  # [num_rows, num_tiles, 4] fp32
    far_ptr: tl.tensor,  # [num_rows, PARTS, PIVOTS] fp32, out
    taken_ptr: tl.tensor,  # [num_rows] int32, out: 0
    row_stride: int,
    width: int,
    vocab_size: int,
    num_tiles: int,
    stride: int,
    TILES: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    """far[pivot] = number, or weight, of the part's tokens beyond the pivot."""
    wait_for_inputs(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    settings_ptr = table_ptr + row * width
    if part == 0:
        tl.store(taken_ptr + row, 0)
    if is_searched(settings_ptr) == 0:
        return
    largest, temperature, total, _ = row_law(settings_ptr, values_ptr + row * num_tiles * 4, num_tiles, TILES)
    by_weight = tl.load(settings_ptr + TOP_K) == 0
    pivots = _pivots(by_weight, load_float(settings_ptr, TOP_P), total, vocab_size).to(tl.int32, bitcast=True)
    far = tl.zeros([PIVOTS, BLOCK], tl.float32)
    for block in tl.static_range(BLOCKS):
        number = (part * BLOCKS + block) * BLOCK + tl.arange(0, BLOCK)
        index = number // RUN * stride + number % RUN
        keys, weights, _ = load_keys(logits_ptr + row * row_stride, index, index < vocab_size, largest, temperature)
        counted = tl.where(index < vocab_size, tl.where(by_weight, weights, 1.0), 0.0)
        far += tl.where(keys[None, :] > pivots[:, None], counted[None, :], 0.0)
    tl.store(far_ptr + (row * tl.num_programs(1) + part) * PIVOTS + tl.arange(0, PIVOTS), tl.sum(far, 1))


@triton.jit
def bracket(
    settings_ptr: tl.tensor,
    far_ptr: tl.tensor,  # [PARTS, PIVOTS] fp32, the row's
    total: tl.tensor,
    vocab_size: tl.tensor,
    sampled: tl.tensor,
    PARTS: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """Two keys: within the first lies less than wanted, -1 if nothing need be; within the second enough, or all."""
    slots = tl.arange(0, PIVOTS)
    far = tl.sum(tl.load(far_ptr + tl.arange(0, PARTS)[:, None] * PIVOTS + slots[None, :]), 0)
    top_k, top_p = tl.load(settings_ptr + TOP_K), load_float(settings_ptr, TOP_P)
    by_weight = top_k == 0
    pivots = _pivots(by_weight, top_p, total, vocab_size)
    each = vocab_size / sampled  # tokens that a sampled one stands for
    heaviest = tl.where(by_weight, tl.exp(-pivots), 1.0)  # of those beyond a pivot
    beyond = tl.where(by_weight, far, sampled - far) * each  # for top-k: not beyond
    doubt = MARGIN * tl.sqrt(each * heaviest * beyond) + UNSEEN * each * heaviest
    allowed = (1.0 - top_p) * total
    enough = tl.where(by_weight, beyond + doubt <= allowed, beyond - doubt >= top_k)
    short = tl.where(by_weight, beyond - doubt > allowed, beyond + doubt < top_k) & (slots < PIVOTS - 1)
    high_slot = tl.min(tl.where(enough, slots, PIVOTS - 1), 0)
    low_slot = tl.max(tl.where(short & (slots < high_slot), slots, -1), 0)
    few = (by_weight == 0) & (tl.sum(tl.where(slots == high_slot, beyond, 0.0), 0) <= FITTING)
    keys = pivots.to(tl.int32, bitcast=True)
    low = tl.where((low_slot < 0) | few, -1, tl.sum(tl.where(slots == low_slot, keys, 0), 0))
    return low, tl.sum(tl.where(slots == high_slot, keys, 0), 0)


def num_sampled(vocab_size: int) -> int:
    return min(vocab_size, SAMPLE)


def sample(
    logits: torch.Tensor,  # [num_rows, vocab_size]
    table: CheckTable,
    parts: RowParts,  # of the whole vocabulary
    taken: torch.Tensor,  # [num_rows] int32, set to 0
) -> torch.Tensor:
    """[num_rows, PARTS, PIVOTS] fp32, for `bracket`; unwritten in rows that need none."""
    num_rows, vocab_size = logits.shape
    num_tiles = parts.tokens.shape[1]
    far = parts.values.new_empty(num_rows, PARTS, PIVOTS.value)
    _sample_kernel[(num_rows, PARTS)](
        logits,
        table.words,
        parts.values,
        far,
        taken,
        logits.stride(0),
        table.words.stride(0),
        vocab_size,
        num_tiles,
        max(vocab_size * RUN.value // SAMPLE, RUN.value),
        TILES=triton.next_power_of_2(num_tiles),
        num_warps=8,
        **launch.overlap_options(),
    )
    return far
