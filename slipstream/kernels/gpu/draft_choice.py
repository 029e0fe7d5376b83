"""Draft tokens of a table's rows on a GPU, in two launches: what each tile of the vocabulary offers, then each row.

A tile's tokens are ranked twice, by logit and by logit with the row's noise, and only the first of each ranking matter:
what is drawn from a law, and what limits leave, is among the likeliest; outcomes are the best with noise. Rankings are
of keys that hold a logit and a token, so that equal logits go by token.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from slipstream.exchange import LAW_TOTAL as TOTAL_COUNT
from slipstream.kernels.draft_choice import CONFIDENCE, FIRST_OUTCOME, NUM_SETTINGS, TOKEN, Drafting, Kind
from slipstream.kernels.draft_choice import Setting as S
from slipstream.kernels.gpu import launch
from slipstream.kernels.gpu.draft_settings import SAMPLE_INDEX, load_key, noise_at, noise_from, setting_float
from slipstream.kernels.gpu.launch import wait_for_inputs
from slipstream.kernels.gpu.rank_keys import NO_KEY, column_of, first_keys, rank_key, store_first, value_of
from slipstream.sampling.draft_law import LAW_SHIFT as SHIFT

KIND, TEMPERATURE = tl.constexpr(int(S.KIND)), tl.constexpr(int(S.TEMPERATURE))
TOP_K, TOP_P, LEAST_SCORE = tl.constexpr(int(S.TOP_K)), tl.constexpr(int(S.TOP_P)), tl.constexpr(int(S.LEAST_SCORE))
DRAFT_KEY = tl.constexpr(int(S.DRAFT_KEY_LOW))
STREAM_WORD = tl.constexpr(int(S.STREAM_WORD))
WIDTH = tl.constexpr(NUM_SETTINGS)
GREEDY, LAW = tl.constexpr(int(Kind.GREEDY)), tl.constexpr(int(Kind.LAW))
LAW_TOTAL, LAW_SHIFT = tl.constexpr(TOTAL_COUNT), tl.constexpr(SHIFT)
TOKEN_WORD, CONFIDENCE_WORD, OUTCOMES_WORD = tl.constexpr(TOKEN), tl.constexpr(CONFIDENCE), tl.constexpr(FIRST_OUTCOME)
TILE = 1024
LEAST_NOISY = 16


@triton.jit
def _rank_tiles_kernel(
    logits_ptr: tl.tensor,  # [num_rows, vocab_size] fp32
    settings_ptr: tl.tensor,  # [num_rows, WIDTH] int32
    positions_ptr: tl.tensor,  # [num_rows] int64
    target_ids_ptr: tl.tensor,  # [vocab_size] int32
    ranked_ptr: tl.tensor,  # [num_rows, num_tiles, RANKED] int64, out: keys of logits
    noisy_ptr: tl.tensor,  # [num_rows, num_tiles, NOISY] int64, out: keys of what only the tile's scores are ranked by
    sums_ptr: tl.tensor,  # [num_rows, num_tiles, 2] fp32, out: largest logit, weight by it
    vocab_size: int,
    num_tiles: int,
    TILE: tl.constexpr,
    RANKED: tl.constexpr,
    NOISY: tl.constexpr,
    WHOLE: tl.constexpr,  # token ids are columns
    OVERLAP: tl.constexpr,
) -> None:
    """ranked = first keys by x; noisy = first keys by (x - largest) / T + noise."""
    wait_for_inputs(OVERLAP)
    row = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1)
    row_ptr = settings_ptr + row * WIDTH
    columns = tile * TILE + tl.arange(0, TILE)
    inside = columns < vocab_size
    token_ids = tl.load(target_ids_ptr + columns, mask=inside, other=-1)
    logits = tl.load(logits_ptr + row * vocab_size + columns, mask=inside, other=float("-inf"))
    logits = tl.where((token_ids >= 0) & (logits == logits), logits, float("-inf"))  # NaN is what padding may be
    largest = tl.max(logits, 0)
    scores = (logits - tl.where(largest == float("-inf"), 0.0, largest)) / setting_float(row_ptr, TEMPERATURE)
    part = row * num_tiles + tile
    tl.store(sums_ptr + part * 2, largest)
    tl.store(sums_ptr + part * 2 + 1, tl.sum(tl.exp(scores), 0))
    store_first(ranked_ptr + part * RANKED, rank_key(logits, columns), RANKED)
    if tl.load(row_ptr + KIND) != GREEDY:
        position = tl.load(positions_ptr + row).to(tl.uint32)
        if WHOLE:
            scores += noise_from(row_ptr, position, tile * TILE, TILE)
        else:
            scores += noise_at(row_ptr, position, token_ids)
    store_first(noisy_ptr + part * NOISY, rank_key(scores, columns), NOISY)


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


@triton.jit
def _choose_kernel(
    logits_ptr: tl.tensor,  # [num_rows, vocab_size] fp32
    settings_ptr: tl.tensor,  # [num_rows, WIDTH] int32
    positions_ptr: tl.tensor,  # [num_rows] int64
    target_ids_ptr: tl.tensor,  # [vocab_size] int32
    ranked_ptr: tl.tensor,  # [num_rows, num_tiles, RANKED] int64
    noisy_ptr: tl.tensor,  # [num_rows, num_tiles, NOISY] int64
    sums_ptr: tl.tensor,  # [num_rows, num_tiles, 2] fp32
    drawn_ptr: tl.tensor,  # [num_rows, width] int32, out
    next_ptr: tl.tensor,  # [num_rows] int64, out
    vocab_size: int,
    num_tiles: int,
    width: int,
    TILES: tl.constexpr,
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

    places = tl.arange(0, TILES * RANKED)
    keys = tl.load(ranked_ptr + row * num_tiles * RANKED + places, mask=places < num_tiles * RANKED, other=NO_KEY)
    keys = first_keys(keys, RANKED)
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

    noisy = tl.arange(0, TILES * NOISY)
    keys = tl.load(noisy_ptr + row * num_tiles * NOISY + noisy, mask=noisy < num_tiles * NOISY, other=NO_KEY)
    others = column_of(keys)
    among = others < vocab_size
    other_ids = tl.load(target_ids_ptr + others, mask=among, other=-1)
    other_logits = tl.load(logits_ptr + others, mask=among & (other_ids >= 0), other=float("-inf"))
    other_logits = tl.where(other_logits == other_logits, other_logits, float("-inf"))
    other_scores = (other_logits - base) / temperature
    with_noise = scores
    if kind != GREEDY:
        with_noise += noise_at(row_ptr, position, token_ids)
        other_scores += noise_at(row_ptr, position, other_ids)
    best = first_keys(rank_key(with_noise, columns), NOISY)
    if all_ranked == 0:
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
    num_tiles = triton.cdiv(vocab_size, TILE)
    sizes = {"RANKED": drafting.num_ranked, "NOISY": max(LEAST_NOISY, triton.next_power_of_2(drafting.num_outcomes))}
    ranked = settings.new_empty(num_rows, num_tiles, sizes["RANKED"], dtype=torch.int64)
    noisy = settings.new_empty(num_rows, num_tiles, sizes["NOISY"], dtype=torch.int64)
    sums = logits.new_empty(num_rows, num_tiles, 2)
    inputs = logits, settings, positions, drafting.target_ids
    _rank_tiles_kernel[(num_rows, num_tiles)](
        *inputs, ranked, noisy, sums, vocab_size, num_tiles,
        TILE=TILE, WHOLE=drafting.is_whole, num_warps=4, **sizes, **launch.overlap_options(),
    )  # fmt: skip
    _choose_kernel[(num_rows,)](
        *inputs, ranked, noisy, sums, drawn, next_ids, vocab_size, num_tiles, drafting.width,
        TILES=triton.next_power_of_2(num_tiles), KEPT=drafting.num_kept, OUTCOMES=drafting.num_outcomes,
        num_warps=8, **sizes, **launch.overlap_options(),
    )  # fmt: skip
