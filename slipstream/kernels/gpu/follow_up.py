"""Inputs of the step after a running one on a GPU: with them a step can be launched before the one ahead of it ends."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from slipstream.kernels.follow_up import NUM_BRANCHES, NUM_DRAFTS, FollowUp, RowColumns, StepRows

BLOCK = 32  # rows of one program
COPIED = 1024  # words of the block tables that a program copies at once


@triton.jit(do_not_specialize=("num_seqs", "num_tokens", "num_rows", "table_words"))  # else each size is compiled anew
def _follow_up_kernel(
    number_ptr: tl.tensor,  # [1]
    counts_ptr: tl.tensor,  # [2]
    decided_ptr: tl.tensor,  # [num_seqs, 2]
    bases_ptr: tl.tensor,  # [num_seqs]
    accepted_ptr: tl.tensor,  # [num_seqs, BRANCHES]
    outcomes_ptr: tl.tensor,  # [num_seqs, BRANCHES]
    lengths_ptr: tl.tensor,  # [num_seqs, BRANCHES]
    drafts_ptr: tl.tensor,  # [num_seqs, BRANCHES, DRAFTS]
    columns_ptr: tl.tensor,  # [num_seqs, COLUMNS]
    padding_ptr: tl.tensor,  # [COLUMNS]
    new_tables_ptr: tl.tensor,  # [num_seqs, max_blocks]
    token_ids_ptr: tl.tensor,  # [num_tokens], out
    query_starts_ptr: tl.tensor,  # [num_seqs + 1], out
    context_lens_ptr: tl.tensor,  # [num_seqs], out
    logits_rows_ptr: tl.tensor,  # [num_rows], out
    row_starts_ptr: tl.tensor,  # [num_seqs + 1], out
    tables_ptr: tl.tensor,  # [num_seqs, max_blocks], out
    words_ptr: tl.tensor,  # [num_rows, COLUMNS], out
    num_seqs: int,
    num_tokens: int,
    num_rows: int,
    table_words: int,
    DRAFT_ID: tl.constexpr,
    POSITION: tl.constexpr,
    SEQUENCES: tl.constexpr,
    BRANCHES: tl.constexpr,
    DRAFTS: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
    COPIED: tl.constexpr,
) -> None:
    """A sequence feeds its outcome and the drafts of that branch, 1 + length rows; those of all follow one another."""
    count = tl.load(counts_ptr + 1)
    if tl.load(counts_ptr) == tl.load(number_ptr):
        program = tl.program_id(0)
        index = tl.arange(0, SEQUENCES)
        known = index < count
        accepted = tl.load(decided_ptr + 2 * index, mask=known, other=0)
        token = tl.load(decided_ptr + 2 * index + 1, mask=known, other=0)
        length = tl.zeros([SEQUENCES], tl.int32)
        for branch in range(BRANCHES):
            at = index * BRANCHES + branch
            hit = (tl.load(accepted_ptr + at, mask=known, other=-1) == accepted) & (
                tl.load(outcomes_ptr + at, mask=known, other=-1) == token
            )
            length = tl.where(hit, tl.load(lengths_ptr + at, mask=known, other=0), length)
        sizes = tl.where(known, length + 1, 0)
        ends = tl.cumsum(sizes, 0)
        if program == 0:
            inside = index < num_seqs
            bases = tl.load(bases_ptr + index, mask=known, other=0)
            tl.store(context_lens_ptr + index, tl.where(known, bases + accepted + 1 + length, 0), mask=inside)
            tl.store(query_starts_ptr + 1 + index, ends, mask=inside)
            tl.store(row_starts_ptr + 1 + index, ends, mask=inside)
            tl.store(query_starts_ptr, 0)
            tl.store(row_starts_ptr, 0)

        rows = program * BLOCK + tl.arange(0, BLOCK)
        before = (ends[None, :] <= rows[:, None]) & (index < num_seqs)[None, :]
        owner = tl.sum(before.to(tl.int32), 1)
        real = owner < count
        start = tl.sum(tl.where(index[None, :] == owner[:, None] - 1, ends[None, :], 0), 1)
        offset = rows - start
        own_accepted = tl.load(decided_ptr + 2 * owner, mask=real, other=0)
        own_token = tl.load(decided_ptr + 2 * owner + 1, mask=real, other=0)
        fed = tl.where(offset == 0, own_token, 0)
        drafted = tl.full([BLOCK], -1, tl.int32)
        for branch in range(BRANCHES):
            at = owner * BRANCHES + branch
            hit = (tl.load(accepted_ptr + at, mask=real, other=-1) == own_accepted) & (
                tl.load(outcomes_ptr + at, mask=real, other=-1) == own_token
            )
            draft = drafts_ptr + at * DRAFTS + offset
            fed = tl.where(hit & (offset > 0), tl.load(draft - 1, mask=hit & (offset > 0), other=0), fed)
            more = hit & (offset < tl.load(lengths_ptr + at, mask=hit, other=0))
            drafted = tl.where(more, tl.load(draft, mask=more, other=0), drafted)
        tl.store(token_ids_ptr + rows, tl.where(real, fed, 0), mask=rows < num_tokens)
        tl.store(logits_rows_ptr + rows, tl.where(real, rows, 0), mask=rows < num_rows)

        columns = tl.arange(0, COLUMNS)
        shared = tl.load(columns_ptr + owner[:, None] * COLUMNS + columns[None, :], mask=real[:, None], other=0)
        words = tl.where(real[:, None], shared, tl.load(padding_ptr + columns)[None, :])
        position = tl.load(bases_ptr + owner, mask=real, other=0) + own_accepted + 1 + offset
        words = tl.where(real[:, None] & (columns == POSITION)[None, :], position[:, None], words)
        words = tl.where(real[:, None] & (columns == DRAFT_ID)[None, :], drafted[:, None], words)
        tl.store(words_ptr + rows[:, None] * COLUMNS + columns[None, :], words, mask=(rows < num_rows)[:, None])

        copied = tl.arange(0, COPIED)
        for first in range(program * COPIED, table_words, tl.num_programs(0) * COPIED):
            inside = first + copied < table_words
            blocks = tl.load(new_tables_ptr + first + copied, mask=inside, other=0)
            tl.store(tables_ptr + first + copied, blocks, mask=inside)


def follow_up(rows: StepRows, follow: FollowUp, decided: torch.Tensor, columns: RowColumns) -> None:
    """What the reference does; it is for at most as many sequences as the follow-up has room for."""
    num_tokens, num_rows, num_seqs = len(rows.token_ids), len(rows.logits_rows), len(rows.context_lens)
    tensors = (*(getattr(rows, name) for name in rows.__slots__), *(getattr(follow, name) for name in follow.__slots__))
    assert all(x.is_contiguous() and x.dtype == torch.int32 for x in (*tensors, decided, columns.padding))
    assert num_seqs <= len(follow.bases), f"{num_seqs} sequences, room for {len(follow.bases)}"
    _follow_up_kernel[(triton.cdiv(num_tokens, BLOCK),)](
        rows.number,
        follow.counts,
        decided,
        follow.bases,
        follow.accepted,
        follow.outcomes,
        follow.lengths,
        follow.drafts,
        follow.columns,
        columns.padding,
        follow.block_tables,
        rows.token_ids,
        rows.query_starts,
        rows.context_lens,
        rows.logits_rows,
        rows.row_starts,
        rows.block_tables,
        rows.words,
        num_seqs,
        num_tokens,
        num_rows,
        rows.block_tables.numel(),
        DRAFT_ID=columns.draft_id,
        POSITION=columns.position,
        SEQUENCES=max(2, triton.next_power_of_2(num_seqs)),  # Triton cannot lay out running sums of one number
        BRANCHES=NUM_BRANCHES,
        DRAFTS=NUM_DRAFTS,
        COLUMNS=rows.words.shape[1],
        BLOCK=BLOCK,
        COPIED=COPIED,
    )
