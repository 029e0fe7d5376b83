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
FITTING = tl.constexpr(1024)  # estimated tokens that are taken whole, though fewer would do
FITTING_BOTH = tl.constexpr(6144)  # the same where top-p follows top-k: it is searched among all that top-k kept
SLACK = tl.constexpr(0.1)  # of the way between two pivots, for what lies there is only interpolated


@triton.jit
def _pivots(
    slots: tl.tensor, by_weight: tl.tensor, top_p: tl.tensor, total: tl.tensor, vocab_size: tl.tensor
) -> tl.tensor:
    """Evenly up to where top-p's limit must lie, as vocab_size * exp(-distance) bounds what is far; else by octaves.

    The last one is infinite, the one before the first 0.
    """
    furthest = tl.log(vocab_size / ((1.0 - top_p) * total))
    even = (slots + 1) * (furthest / (PIVOTS - 1))
    octaves = tl.where(slots < 0, 0.0, tl.exp2(slots * 0.25 - 4.0))
    return tl.where(slots >= PIVOTS - 1, float("inf"), tl.where(by_weight, even, octaves))


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
    pivots = _pivots(tl.arange(0, PIVOTS), by_weight, load_float(settings_ptr, TOP_P), total, vocab_size)
    pivots = pivots.to(tl.int32, bitcast=True)
    far = tl.zeros([PIVOTS, BLOCK], tl.float32)
    for block in tl.static_range(BLOCKS):
        number = (part * BLOCKS + block) * BLOCK + tl.arange(0, BLOCK)
        index = number // RUN * stride + number % RUN
        keys, weights, _ = load_keys(logits_ptr + row * row_stride, index, index < vocab_size, largest, temperature)
        counted = tl.where(index < vocab_size, tl.where(by_weight, weights, 1.0), 0.0)
        far += tl.where(keys[None, :] > pivots[:, None], counted[None, :], 0.0)
    tl.store(far_ptr + (row * tl.num_programs(1) + part) * PIVOTS + tl.arange(0, PIVOTS), tl.sum(far, 1))


@triton.jit
def _estimate(
    settings_ptr: tl.tensor,
    far_ptr: tl.tensor,
    slots: tl.tensor,
    total: tl.tensor,
    vocab_size: tl.tensor,
    sampled: tl.tensor,
    PARTS: tl.constexpr,
) -> tuple[tl.tensor, ...]:
    """The pivots of these slots, what probably lies beyond them, or within for top-k, and how far that may be off."""
    by_weight = tl.load(settings_ptr + TOP_K) == 0
    pivots = _pivots(slots, by_weight, load_float(settings_ptr, TOP_P), total, vocab_size)
    known = (slots >= 0) & (slots < PIVOTS)
    places = tl.arange(0, PARTS)[:, None] * PIVOTS + tl.where(known, slots, 0)[None, :]
    far = tl.sum(tl.load(far_ptr + places), 0)
    each = vocab_size / sampled  # tokens that a sampled one stands for
    far = tl.where(slots < 0, tl.where(by_weight, total / each, sampled * 1.0), tl.where(known, far, 0.0))
    heaviest = tl.where(by_weight, tl.exp(-pivots), 1.0)  # of those beyond a pivot
    amount = tl.where(by_weight, far, sampled - far) * each
    return pivots, amount, MARGIN * tl.sqrt(each * heaviest * amount) + UNSEEN * each * heaviest


@triton.jit
def _between(
    nearer: tl.tensor, pivots: tl.tensor, before: tl.tensor, after: tl.tensor, limit: tl.tensor, slack: tl.tensor
) -> tl.tensor:
    """Where on the way from one pivot to the next an amount comes to the limit, if it changes by a factor a step."""
    before, after = tl.maximum(before, 1e-30), tl.maximum(after, 1e-30)
    share = tl.log(limit / before) / tl.log(after / before)
    share = tl.minimum(tl.maximum(share + slack, 0.0), 1.0)
    return tl.where(pivots < float("inf"), nearer + (pivots - nearer) * share, tl.where(slack < 0, nearer, pivots))


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
    top_k, top_p = tl.load(settings_ptr + TOP_K), load_float(settings_ptr, TOP_P)
    by_weight = top_k == 0
    limit = tl.where(by_weight, (1.0 - top_p) * total, top_k * 1.0)
    before, amount_before, doubt_before = _estimate(settings_ptr, far_ptr, slots - 1, total, vocab_size, sampled, PARTS)
    here, amount, doubt = _estimate(settings_ptr, far_ptr, slots, total, vocab_size, sampled, PARTS)
    sign = tl.where(by_weight, 1.0, -1.0)  # beyond must be little, within much
    surely_before, surely = amount_before + sign * doubt_before, amount + sign * doubt
    hardly_before, hardly = amount_before - sign * doubt_before, amount - sign * doubt
    enough = tl.where(by_weight, surely <= limit, surely >= limit) | (slots == PIVOTS - 1)
    short = tl.where(by_weight, hardly_before > limit, hardly_before < limit)
    high = tl.min(
        tl.where(enough, _between(before, here, surely_before, surely, limit, slots * 0.0 + SLACK), float("inf")), 0
    )
    low = tl.max(tl.where(short, _between(before, here, hardly_before, hardly, limit, slots * 0.0 - SLACK), 0.0), 0)
    within = tl.min(tl.where(enough & (here >= high), amount, float("inf")), 0)  # at most, for top-k
    few = (by_weight == 0) & (within <= tl.where(top_p < 1, FITTING_BOTH, FITTING))
    unbounded = few | (low <= 0) | (low >= high)
    return tl.where(unbounded, -1, low.to(tl.int32, bitcast=True)), high.to(tl.int32, bitcast=True)


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
