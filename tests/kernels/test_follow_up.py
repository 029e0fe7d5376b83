"""A step that follows a running one gets the inputs that the host would have written after its end."""

from __future__ import annotations

import torch

from slipstream.kernels.follow_up import (
    NUM_BRANCHES,
    NUM_DRAFTS,
    PAD,
    FollowUp,
    RowColumns,
    StepRows,
    follow_up_reference,
)

NUM_COLUMNS, MAX_BLOCKS = 16, 5
COLUMNS = RowColumns(draft_id=1, position=2, padding=torch.arange(100, 100 + NUM_COLUMNS, dtype=torch.int32))


def ints(generator: torch.Generator, low: int, high: int, *shape: int) -> torch.Tensor:
    return torch.randint(low, high, shape, generator=generator, dtype=torch.int32)


def random_follow_up(
    generator: torch.Generator, num_seqs: int, room: int, number: int
) -> tuple[FollowUp, torch.Tensor]:
    """And how the running step ends: mostly in an outcome that has a branch."""
    accepted = ints(generator, 0, 3, room, NUM_BRANCHES)
    outcomes = torch.stack([torch.randperm(50, generator=generator)[:NUM_BRANCHES] for _ in range(room)]).int()
    picked = ints(generator, 0, NUM_BRANCHES, room).long()[:, None]
    decided = torch.cat((accepted.gather(1, picked), outcomes.gather(1, picked)), dim=1)
    decided[::3, 1] = 99  # no branch has this one
    counts = torch.tensor([number, num_seqs], dtype=torch.int32)
    follow = FollowUp(
        counts,
        ints(generator, 5, 60, room),
        accepted,
        outcomes,
        ints(generator, 0, NUM_DRAFTS + 1, room, NUM_BRANCHES),
        ints(generator, 0, 320, room, NUM_BRANCHES, NUM_DRAFTS),
        ints(generator, 0, 1000, room, NUM_COLUMNS),
        ints(generator, 0, 1000, room, MAX_BLOCKS),
    )
    if num_seqs == 1:
        decided[0, 1] = outcomes[0, int(picked[0])]
    follow.lengths[range(room), picked[:, 0]] += follow.lengths[range(room), picked[:, 0]] == 0
    return follow, decided.contiguous()


def random_rows(generator: torch.Generator, num_seqs: int, number: int) -> StepRows:
    """As an earlier step left them."""
    num_rows = num_seqs * (1 + NUM_DRAFTS)
    return StepRows(
        torch.tensor([number], dtype=torch.int32),
        ints(generator, 0, 320, num_rows + 2),
        ints(generator, 0, 320, num_seqs + 1),
        ints(generator, 0, 320, num_seqs),
        ints(generator, 0, 320, num_rows),
        ints(generator, 0, 320, num_seqs + 1),
        ints(generator, 0, 320, num_seqs, MAX_BLOCKS),
        ints(generator, 0, 320, num_rows, NUM_COLUMNS),
    )


def test_the_branch_of_what_happened_is_fed_and_checked_and_without_one_the_outcome_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    follow, decided = random_follow_up(generator, 2, 3, number=2)
    rows = random_rows(generator, 3, number=2)
    follow.accepted[0, 4], follow.outcomes[0, 4], follow.lengths[0, 4] = 2, 77, 3
    follow.drafts[0, 4, :3] = torch.tensor([11, 12, 13])
    follow.bases[:2] = torch.tensor([20, 30])
    decided[0], decided[1] = torch.tensor([2, 77]), torch.tensor([1, 99])
    follow_up_reference(rows, follow, decided, COLUMNS)
    assert rows.token_ids.tolist()[:6] == [77, 11, 12, 13, 99, 0]
    assert rows.query_starts.tolist() == rows.row_starts.tolist() == [0, 4, 5, 5]
    assert rows.context_lens.tolist() == [26, 32, 0]
    assert rows.logits_rows.tolist()[:6] == [0, 1, 2, 3, 4, 0]
    assert rows.words[:5, COLUMNS.position].tolist() == [23, 24, 25, 26, 32]
    assert rows.words[:6, COLUMNS.draft_id].tolist() == [11, 12, 13, PAD, PAD, int(COLUMNS.padding[1])]
    assert torch.equal(rows.words[:4, 3:], follow.columns[:1, 3:].expand(4, -1))
    assert torch.equal(rows.block_tables[:2], follow.block_tables[:2])
