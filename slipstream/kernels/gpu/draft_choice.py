"""Draft tokens of a table's rows on a GPU, in two launches: what each tile of the vocabulary offers, then each row.

Tokens are ranked twice, by logit and by logit with the row's noise, and only the first of each ranking matter: what is
drawn from a law, and what limits leave, is among the likeliest; outcomes are the best with noise.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from slipstream.exchange import LAW_TOTAL as TOTAL_COUNT
from slipstream.kernels.draft_choice import CONFIDENCE, FIRST_OUTCOME, TOKEN, Drafting, Kind
from slipstream.kernels.draft_choice import Setting as S
from slipstream.kernels.gpu import launch
from slipstream.kernels.gpu.draft_candidates import (
    GREEDY,
    KIND,
    TEMPERATURE,
    TILE,
    WIDTH,
    columns_of_first_groups,
    group_size,
    group_tiles_kernel,
    possible_logits,
)
from slipstream.kernels.gpu.draft_settings import SAMPLE_INDEX, load_key, noise_at, setting_float
from slipstream.kernels.gpu.launch import wait_for_inputs
from slipstream.kernels.gpu.rank_keys import column_of, first_keys, rank_key, value_of
from slipstream.sampling.draft_law import LAW_SHIFT as SHIFT

TOP_K, TOP_P, LEAST_SCORE = tl.constexpr(int(S.TOP_K)), tl.constexpr(int(S.TOP_P)), tl.constexpr(int(S.LEAST_SCORE))
DRAFT_KEY = tl.constexpr(int(S.DRAFT_KEY_LOW))
STREAM_WORD = tl.constexpr(int(S.STREAM_WORD))
LAW = tl.constexpr(int(Kind.LAW))
LAW_TOTAL, LAW_SHIFT = tl.constexpr(TOTAL_COUNT), tl.constexpr(SHIFT)
TOKEN_WORD, CONFIDENCE_WORD, OUTCOMES_WORD = tl.constexpr(TOKEN), tl.constexpr(CONFIDENCE), tl.constexpr(FIRST_OUTCOME)
LEAST_NOISY = 16


@triton.jit
def _limit(
    scores: tl.tensor,  # [RANKED], likeliest first
    total: tl.tensor,  # weight of the vocabulary
    row_ptr: tl.tensor,
    RANKED: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """Top-k, top-p, min-p: scores, -inf where removed; the weight left; whether all that is left is ranked."""
    ranks = tl.arange(0, RANKED)
    top_k = tl.load(row_ptr + TOP_K)
    by_rank = (top_k > 0) & (top_k <= RANKED)
    kth = tl.where(by_rank, tl.sum(tl.where(ranks == top_k - 1, scores, 0.0), 0), float("-inf"))
    scores = tl.where(scores < kth, float("-inf"), scores)
    weights = tl.exp(scores)
    total = tl.where(by_rank, tl.sum(weights, 0), total)
    top_p = setting_float(row_ptr, TOP_P)
    mass = tl.where(top_p < 1, top_p * total, float("inf"))
    first = tl.min(tl.where(tl.cumsum(weights, 0) >= mass, ranks, RANKED), 0)
    least = tl.where(first < RANKED, tl.sum(tl.where(ranks == first, scores, 0.0), 0), float("-inf"))
    least = tl.maximum(least, setting_float(row_ptr, LEAST_SCORE))
    scores = tl.where(scores < least, float("-inf"), scores)
    all_ranked = tl.sum(tl.where(ranks == RANKED - 1, scores, 0.0), 0) == float("-inf")
    return scores, tl.where(all_ranked, tl.sum(tl.exp(scores), 0), total), all_ranked


@triton.jit
def _draw_from_law(
    scores: tl.tensor,  # [RANKED], likeliest first, the first one 0
    row_ptr: tl.tensor,
    position: tl.tensor,
    RANKED: tl.constexpr,
    KEPT: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """Counts [RANKED] of LAW_TOTAL, and the rank that the row's DRAFT noise draws from them."""
    ranks = tl.arange(0, RANKED)
    weights = tl.where(ranks < KEPT, tl.exp(scores), 0.0)
    kept = tl.sum(weights, 0)
    counts = (weights / tl.where(kept == 0, 1.0, kept) * LAW_TOTAL).to(tl.int32)
    counts += tl.where(ranks == 0, -(tl.sum(counts, 0) - LAW_TOTAL), 0)
    stream_word = tl.load(row_ptr + STREAM_WORD).to(tl.uint32, bitcast=True)
    sample_index = tl.load(row_ptr + SAMPLE_INDEX).to(tl.uint32, bitcast=True)
    zero = (position * 0).to(tl.uint32)
    word, _, _, _ = tl.philox(load_key(row_ptr, DRAFT_KEY), zero, position, stream_word, sample_index)
    mark = (word >> LAW_SHIFT).to(tl.int32)
    return counts, tl.sum((tl.cumsum(counts, 0) <= mark).to(tl.int32), 0)


@triton.jit(do_not_specialize=["positions_ptr", "drawn_ptr", "next_ptr"])  # a step's part of them lies anywhere
def _choose_kernel(
    logits_ptr: tl.tensor,  # [num_rows, vocab_size] fp32
    settings_ptr: tl.tensor,  # [num_rows, WIDTH] int32
    positions_ptr: tl.tensor,  # [num_rows] int64
    target_ids_ptr: tl.tensor,  # [vocab_size] int32
    ranked_ptr: tl.tensor,  # [num_rows, groups] int64
    noisy_ptr: tl.tensor,  # the same shape
    sums_ptr: tl.tensor,  # [num_rows, num_tiles, 2] fp32
    drawn_ptr: tl.tensor,  # [num_rows, width] int32, out
    next_ptr: tl.tensor,  # [num_rows] int64, out
    vocab_size: int,
    num_tiles: int,
    width: int,
    TILE: tl.constexpr,
    GROUP: tl.constexpr,
    TILES: tl.constexpr,
    GROUPS: tl.constexpr,
    RANKED: tl.constexpr,
    NOISY: tl.constexpr,
    KEPT: tl.constexpr,
    OUTCOMES: tl.constexpr,
    OVERLAP: tl.constexpr,
) -> None:
    """One row: limits and law of the likeliest, outcomes = the best of (x - largest) / T + noise that are left."""
    wait_for_inputs(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    row_ptr, drawn_ptr = settings_ptr + row * WIDTH, drawn_ptr + row * width
    logits_ptr += row * vocab_size
    kind, temperature = tl.load(row_ptr + KIND), setting_float(row_ptr, TEMPERATURE)
    position = tl.load(positions_ptr + row).to(tl.uint32)
    tiles = tl.arange(0, TILES)
    parts = sums_ptr + (row * num_tiles + tiles) * 2
    tops = tl.load(parts, mask=tiles < num_tiles, other=float("-inf"))
    largest = tl.max(tops, 0)
    base = tl.where(largest == float("-inf"), 0.0, largest)
    weights = tl.load(parts + 1, mask=tiles < num_tiles, other=0.0)
    total = tl.sum(tl.where(weights > 0, weights * tl.exp((tops - base) / temperature), 0.0), 0)

    num_groups = num_tiles * (TILE // GROUP)
    columns = columns_of_first_groups(ranked_ptr + row * num_groups, num_groups, GROUPS, RANKED, GROUP)
    likely, _ = possible_logits(logits_ptr, target_ids_ptr, columns, vocab_size)
    keys = first_keys(rank_key(likely, columns), RANKED)
    columns = column_of(keys)
    known = columns < vocab_size
    token_ids = tl.load(target_ids_ptr + columns, mask=known, other=-1)
    scores = tl.where(known, (value_of(keys) - base) / temperature, float("-inf"))
    scores, total, all_ranked = _limit(scores, total, row_ptr, RANKED)
    counts, rank = _draw_from_law(scores, row_ptr, position, RANKED, KEPT)
    ranks = tl.arange(0, RANKED)
    from_law = tl.sum(tl.where(ranks == rank, token_ids, 0), 0)
    law_ptr = drawn_ptr + OUTCOMES_WORD + OUTCOMES
    tl.store(law_ptr + ranks, token_ids, mask=ranks < KEPT)
    tl.store(law_ptr + KEPT + ranks, counts, mask=ranks < KEPT)

    if (kind == GREEDY) | (all_ranked != 0):
        with_noise = scores
        if kind != GREEDY:
            with_noise += noise_at(row_ptr, position, token_ids)
        best = first_keys(rank_key(with_noise, columns), NOISY)
    else:
        others = columns_of_first_groups(noisy_ptr + row * num_groups, num_groups, GROUPS, NOISY, GROUP)
        other_logits, other_ids = possible_logits(logits_ptr, target_ids_ptr, others, vocab_size)
        other_scores = (other_logits - base) / temperature + noise_at(row_ptr, position, other_ids)
        best = first_keys(rank_key(other_scores, others), NOISY)
    places = tl.arange(0, NOISY)
    columns = column_of(best)
    possible = (value_of(best) > float("-inf")) & (columns < vocab_size)
    outcomes = tl.load(target_ids_ptr + columns, mask=possible, other=-1)
    tl.store(drawn_ptr + OUTCOMES_WORD + places, outcomes, mask=places < OUTCOMES)
    chosen_logits = tl.load(logits_ptr + columns, mask=possible & (places == 0), other=float("-inf"))
    probability = tl.exp((tl.max(chosen_logits, 0) - base) / temperature) / total
    token_id = tl.where(kind == LAW, from_law, tl.sum(tl.where(places == 0, outcomes, 0), 0))
    tl.store(drawn_ptr + TOKEN_WORD, token_id)
    tl.store(drawn_ptr + CONFIDENCE_WORD, tl.where(kind == LAW, 1.0, probability).to(tl.int32, bitcast=True))
    tl.store(next_ptr + row, tl.maximum(token_id, 0).to(tl.int64))


def choose_drafts(
    logits: torch.Tensor,  # [num_rows, draft vocab] fp32
    settings: torch.Tensor,  # [num_rows, NUM_SETTINGS] int32
    positions: torch.Tensor,  # [num_rows] int64
    drafting: Drafting,
    drawn: torch.Tensor,  # [num_rows, drafting.width] int32, out
    next_ids: torch.Tensor,  # [num_rows] int64, out
) -> None:
    num_rows, vocab_size = logits.shape
    assert all(x.is_contiguous() for x in (logits, settings, positions, drawn, next_ids))
    num_tiles, group = triton.cdiv(vocab_size, TILE), group_size(vocab_size)
    num_groups = num_tiles * (TILE // group)
    ranked, noisy = settings.new_empty(2, num_rows, num_groups, dtype=torch.int64)
    sums = logits.new_empty(num_rows, num_tiles, 2, dtype=torch.float32)
    inputs = logits, settings, positions, drafting.target_ids
    group_tiles_kernel[(num_rows, num_tiles)](
        *inputs, ranked, noisy, sums, vocab_size, num_tiles,
        TILE=TILE, GROUP=group, WHOLE=drafting.is_whole, num_warps=4, **launch.overlap_options(),
    )  # fmt: skip
    _choose_kernel[(num_rows,)](
        *inputs, ranked, noisy, sums, drawn, next_ids, vocab_size, num_tiles, drafting.width,
        TILE=TILE, GROUP=group, TILES=triton.next_power_of_2(num_tiles),
        GROUPS=max(triton.next_power_of_2(num_groups), drafting.num_ranked),
        RANKED=drafting.num_ranked, NOISY=max(LEAST_NOISY, triton.next_power_of_2(drafting.num_outcomes)),
        KEPT=drafting.num_kept, OUTCOMES=drafting.num_outcomes,
        num_warps=8, **launch.overlap_options(),
    )  # fmt: skip
