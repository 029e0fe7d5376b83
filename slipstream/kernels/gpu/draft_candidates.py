"""Which tokens of a row of logits can be among its first: those of the groups of tokens whose first are the first.

So a row is ranked in two steps, neither of which looks at all of it: the best groups by their best token, then the
tokens of those. Rankings are of keys that hold a logit and a token, so that equal logits go by token.
"""

from __future__ import annotations

import triton
import triton.language as tl

from slipstream.kernels.draft_choice import NUM_SETTINGS, Kind
from slipstream.kernels.draft_choice import Setting as S
from slipstream.kernels.gpu.draft_settings import noise_at, noise_from, setting_float
from slipstream.kernels.gpu.launch import wait_for_inputs
from slipstream.kernels.gpu.rank_keys import NO_KEY, column_of, first_keys, rank_key

KIND, TEMPERATURE = tl.constexpr(int(S.KIND)), tl.constexpr(int(S.TEMPERATURE))
WIDTH = tl.constexpr(NUM_SETTINGS)
GREEDY = tl.constexpr(int(Kind.GREEDY))
TILE = 1024  # tokens of one program
LARGE = 1 << 16  # vocabularies beyond are cut into larger groups, for else there were too many


@triton.jit(do_not_specialize=["positions_ptr"])  # a step's part of them lies anywhere
def group_tiles_kernel(
    logits_ptr: tl.tensor,  # [num_rows, vocab_size]
    settings_ptr: tl.tensor,  # [num_rows, WIDTH] int32
    positions_ptr: tl.tensor,  # [num_rows] int64
    target_ids_ptr: tl.tensor,  # [vocab_size] int32
    ranked_ptr: tl.tensor,  # [num_rows, num_tiles, TILE / GROUP] int64, out: each group's largest key by logit
    noisy_ptr: tl.tensor,  # the same shape, out: by logit / T + noise; of greedy rows nothing
    sums_ptr: tl.tensor,  # [num_rows, num_tiles, 2] fp32, out: largest logit, weight by it
    vocab_size: int,
    num_tiles: int,
    TILE: tl.constexpr,
    GROUP: tl.constexpr,
    WHOLE: tl.constexpr,  # token ids are columns
    OVERLAP: tl.constexpr,
) -> None:
    """ranked = max of keys by x; noisy = max of keys by x / T + noise."""
    wait_for_inputs(OVERLAP)
    GROUPS: tl.constexpr = TILE // GROUP
    row = tl.program_id(0).to(tl.int64)
    tile = tl.program_id(1)
    row_ptr = settings_ptr + row * WIDTH
    columns = tile * TILE + tl.arange(0, TILE)
    logits, token_ids = possible_logits(logits_ptr + row * vocab_size, target_ids_ptr, columns, vocab_size)
    largest = tl.max(logits, 0)
    temperature = setting_float(row_ptr, TEMPERATURE)
    weights = tl.exp((logits - tl.where(largest == float("-inf"), 0.0, largest)) / temperature)
    part = row * num_tiles + tile
    tl.store(sums_ptr + part * 2, largest)
    tl.store(sums_ptr + part * 2 + 1, tl.sum(weights, 0))
    groups = part * GROUPS + tl.arange(0, GROUPS)
    tl.store(ranked_ptr + groups, tl.max(tl.reshape(rank_key(logits, columns), [GROUPS, GROUP]), 1))
    if tl.load(row_ptr + KIND) != GREEDY:
        position = tl.load(positions_ptr + row).to(tl.uint32)
        if WHOLE:
            scores = logits / temperature + noise_from(row_ptr, position, tile * TILE, TILE)
        else:
            scores = logits / temperature + noise_at(row_ptr, position, token_ids)
        tl.store(noisy_ptr + groups, tl.max(tl.reshape(rank_key(scores, columns), [GROUPS, GROUP]), 1))


@triton.jit
def possible_logits(
    logits_ptr: tl.tensor,  # one row's
    target_ids_ptr: tl.tensor,
    columns: tl.tensor,
    vocab_size: tl.tensor,
) -> tuple[tl.tensor, tl.tensor]:
    """fp32 logits, -inf of what is no token or no number, as of padding; and the token ids, -1 where there is none."""
    inside = columns < vocab_size
    token_ids = tl.load(target_ids_ptr + columns, mask=inside, other=-1)
    logits = tl.load(logits_ptr + columns, mask=inside, other=float("-inf")).to(tl.float32)
    return tl.where((token_ids >= 0) & (logits == logits), logits, float("-inf")), token_ids


@triton.jit
def columns_of_first_groups(
    keys_ptr: tl.tensor,  # one row's
    num_groups: tl.tensor,
    GROUPS: tl.constexpr,  # a power of two, at least num_groups and COUNT
    COUNT: tl.constexpr,
    GROUP: tl.constexpr,
) -> tl.tensor:
    """[COUNT * GROUP]: columns of the tokens of the COUNT first groups, and of no token where there are fewer."""
    groups = tl.arange(0, GROUPS)
    first = first_keys(tl.load(keys_ptr + groups, mask=groups < num_groups, other=NO_KEY), COUNT)
    columns = column_of(first) // GROUP * GROUP
    return tl.reshape(columns[:, None] + tl.arange(0, GROUP)[None, :], [COUNT * GROUP])


def group_size(vocab_size: int) -> int:
    return 32 if vocab_size <= LARGE else 64
