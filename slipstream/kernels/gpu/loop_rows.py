"""What a draft loop's steps are fed, in one launch in place of a dozen: a program for each token and for each row.

The kernels behind it are not let to start before it ends: those of a draft step look at tables and context lengths
before they wait (draft_step/attend.py).
"""

from __future__ import annotations

from dataclasses import replace

import torch
import triton
import triton.language as tl

from slipstream.kernels.loop_rows import LoopPlaces, LoopWords


@triton.jit
def _copy_table(source_ptr: tl.tensor, target_ptr: tl.tensor, max_blocks: tl.tensor, BLOCK: tl.constexpr) -> None:
    for start in range(0, max_blocks, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < max_blocks
        tl.store(target_ptr + columns, tl.load(source_ptr + columns, mask=inside).to(tl.int64), mask=inside)


@triton.jit
def _place_loop_kernel(
    token_ids_ptr: tl.tensor,  # [num_tokens] int32
    context_lens_ptr: tl.tensor,  # [num_tokens] int32
    token_rows_ptr: tl.tensor,  # [num_tokens] int32
    last_tokens_ptr: tl.tensor,  # [num_rows] int32
    num_steps_ptr: tl.tensor,  # [num_rows] int32
    tables_ptr: tl.tensor,  # [num_rows, max_blocks] int32
    new_ids_ptr: tl.tensor,  # [num_tokens] int64, out, as all below
    new_lens_ptr: tl.tensor,  # [num_tokens]
    token_tables_ptr: tl.tensor,  # [num_tokens, max_blocks]
    new_tables_ptr: tl.tensor,  # [num_rows, max_blocks]
    new_last_ptr: tl.tensor,  # [num_rows]
    positions_ptr: tl.tensor,  # [num_steps, width]
    contexts_ptr: tl.tensor,  # [num_steps, width]
    num_tokens: int,
    width: int,  # at least the rows
    max_blocks: int,
    num_steps: int,
    STEPS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """position = context_len of the row's last token + step; context = position while step < the row's num_steps."""
    token = tl.program_id(0)
    if token < num_tokens:
        tl.store(new_ids_ptr + token, tl.load(token_ids_ptr + token).to(tl.int64))
        tl.store(new_lens_ptr + token, tl.load(context_lens_ptr + token).to(tl.int64))
        source = tl.load(token_rows_ptr + token).to(tl.int64)
        target_ptr = token_tables_ptr + token.to(tl.int64) * max_blocks
        _copy_table(tables_ptr + source * max_blocks, target_ptr, max_blocks, BLOCK)
    else:
        row = (token - num_tokens).to(tl.int64)
        last = tl.load(last_tokens_ptr + row).to(tl.int64)
        tl.store(new_last_ptr + row, last)
        steps = tl.arange(0, STEPS)
        positions = tl.load(context_lens_ptr + last).to(tl.int64) + steps
        contexts = tl.where(steps < tl.load(num_steps_ptr + row), positions, 0)
        tl.store(positions_ptr + steps * width + row, positions, mask=steps < num_steps)
        tl.store(contexts_ptr + steps * width + row, contexts, mask=steps < num_steps)
        _copy_table(tables_ptr + row * max_blocks, new_tables_ptr + row * max_blocks, max_blocks, BLOCK)


def place_loop(words: LoopWords, num_steps: int) -> LoopPlaces:
    (num_tokens,), (num_rows, max_blocks) = words.token_ids.shape, words.block_tables.shape
    assert words.block_tables.is_contiguous()
    shapes = [(num_tokens,), (num_tokens,), (num_tokens, max_blocks), (num_rows, max_blocks), (num_rows,)]
    width = num_rows + num_rows % 2  # a step's part begins at 16 bytes: kernels are built for where pointers lie
    shapes += [(num_steps, width)] * 2
    places = LoopPlaces(*(words.token_ids.new_empty(shape, dtype=torch.int64) for shape in shapes))
    _place_loop_kernel[(num_tokens + num_rows,)](
        words.token_ids, words.context_lens, words.token_rows, words.last_tokens, words.num_steps, words.block_tables,
        places.token_ids, places.context_lens, places.token_tables, places.block_tables, places.last_tokens,
        places.positions, places.contexts, num_tokens, width, max_blocks, num_steps,
        STEPS=triton.next_power_of_2(num_steps), BLOCK=128, num_warps=2,
    )  # fmt: skip
    return replace(places, positions=places.positions[:, :num_rows], contexts=places.contexts[:, :num_rows])
