"""Inputs of the step after one that still runs, from how that one ends. Knows rows and outcomes; no requests.

A sequence's branch is what it is to check next if the step ends in that branch's outcome: so many draft tokens
accepted, then that token. Without a branch for what happened nothing is checked, and one token is decided.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from slipstream.kernels.dispatch import fused

PAD = -1  # no draft token; also the outcome that never happens
NUM_BRANCHES = 16  # of one sequence
NUM_DRAFTS = 8  # tokens of a branch


@dataclass(frozen=True, slots=True)
class FollowUp:
    """What the host knows beforehand, int32; sequences beyond counts[1] are padding."""

    counts: torch.Tensor  # [2]: number of the step that the host wrote last before it; number of its sequences
    bases: torch.Tensor  # [num_seqs]: position of the first token that the running step decides
    accepted: torch.Tensor  # [num_seqs, NUM_BRANCHES]: outcomes of the branches
    outcomes: torch.Tensor  # [num_seqs, NUM_BRANCHES]
    lengths: torch.Tensor  # [num_seqs, NUM_BRANCHES]: draft tokens of each branch
    drafts: torch.Tensor  # [num_seqs, NUM_BRANCHES, NUM_DRAFTS]
    columns: torch.Tensor  # [num_seqs, num_columns]: what all rows of a sequence share
    block_tables: torch.Tensor  # [num_seqs, max_blocks]


@dataclass(frozen=True, slots=True)
class RowColumns:
    """Which words of a row differ from row to row, and the row of nobody."""

    draft_id: int
    position: int
    padding: torch.Tensor  # [num_columns] int32


@dataclass(frozen=True, slots=True)
class StepRows:
    """What is written: a step's inputs, int32. The number is that of the step which the host wrote there itself."""

    number: torch.Tensor  # [1]
    token_ids: torch.Tensor  # [num_tokens]
    query_starts: torch.Tensor  # [num_seqs + 1]
    context_lens: torch.Tensor  # [num_seqs]
    logits_rows: torch.Tensor  # [num_rows]
    row_starts: torch.Tensor  # [num_seqs + 1]
    block_tables: torch.Tensor  # [num_seqs, max_blocks]
    words: torch.Tensor  # [num_rows, num_columns]


def follow_up(
    rows: StepRows,
    follow: FollowUp,
    decided: torch.Tensor,  # [at least num_seqs, 2] int32: draft tokens accepted, and the token after them
    columns: RowColumns,
) -> None:
    """Writes the rows if `follow` is of a step behind theirs; else leaves them, for the host wrote them since."""
    if fused(decided):
        from slipstream.kernels.gpu import follow_up as gpu

        gpu.follow_up(rows, follow, decided, columns)
    else:
        follow_up_reference(rows, follow, decided, columns)


def follow_up_reference(rows: StepRows, follow: FollowUp, decided: torch.Tensor, columns: RowColumns) -> None:
    number, count = follow.counts.tolist()
    if number != int(rows.number):
        return
    rows.token_ids.zero_()
    rows.logits_rows.zero_()
    rows.words[:] = columns.padding
    end = 0
    for i in range(len(rows.context_lens)):
        if i < count:
            accepted, token = decided[i].tolist()
            draft = _branch(follow, i, accepted, token)
            base = int(follow.bases[i]) + accepted + 1
            fed = [token, *draft]
            own = slice(end, end + len(fed))
            rows.token_ids[own] = torch.tensor(fed, dtype=torch.int32)
            rows.logits_rows[own] = torch.arange(own.start, own.stop, dtype=torch.int32)
            rows.words[own] = follow.columns[i]
            rows.words[own, columns.position] = torch.arange(base, base + len(fed), dtype=torch.int32)
            rows.words[own, columns.draft_id] = torch.tensor([*draft, PAD], dtype=torch.int32)
            rows.block_tables[i] = follow.block_tables[i]
            end = own.stop
        rows.context_lens[i] = base + len(draft) if i < count else 0
        rows.query_starts[i + 1] = rows.row_starts[i + 1] = end
    rows.query_starts[0] = rows.row_starts[0] = 0


def _branch(follow: FollowUp, sequence: int, accepted: int, token: int) -> list[int]:
    """Draft tokens for what happened."""
    keys = zip(follow.accepted[sequence].tolist(), follow.outcomes[sequence].tolist(), strict=True)
    for branch, key in enumerate(keys):
        if key == (accepted, token):
            draft: list[int] = follow.drafts[sequence, branch, : int(follow.lengths[sequence, branch])].tolist()
            return draft
    return []
