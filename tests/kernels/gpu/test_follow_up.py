"""The follow-up kernel agrees with the reference."""

from __future__ import annotations

import pytest
import torch

from slipstream.kernels.follow_up import PAD, FollowUp, StepRows, follow_up_reference
from slipstream.kernels.gpu.follow_up import follow_up
from tests.kernels.test_follow_up import COLUMNS, random_follow_up, random_rows


@pytest.mark.parametrize("num_seqs", [1, 2, 5, 32])
@pytest.mark.parametrize("num_padded", [0, 3])
def test_kernel_agrees_with_the_reference(num_seqs: int, num_padded: int, device: torch.device) -> None:
    generator = torch.Generator().manual_seed(num_seqs)
    follow, decided = random_follow_up(generator, num_seqs, num_seqs + num_padded, number=7)
    expected = random_rows(generator, num_seqs + num_padded, number=7)
    rows = StepRows(*(getattr(expected, name).clone().to(device) for name in expected.__slots__))
    follow_up_reference(expected, follow, decided, COLUMNS)
    follow = FollowUp(*(getattr(follow, name).to(device) for name in follow.__slots__))
    columns = type(COLUMNS)(COLUMNS.draft_id, COLUMNS.position, COLUMNS.padding.to(device))
    follow_up(rows, follow, decided.to(device), columns)
    used = slice(num_seqs)
    for name in expected.__slots__:
        mine, right = getattr(rows, name).cpu(), getattr(expected, name)
        torch.testing.assert_close(
            mine[used] if name == "block_tables" else mine, right[used] if name == "block_tables" else right
        )
    assert bool((expected.words[:, COLUMNS.draft_id] != PAD).any()), "no branch was taken"


def test_rows_that_the_host_wrote_itself_are_left(device: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)
    follow, decided = random_follow_up(generator, 3, 3, number=7)
    rows = random_rows(generator, 3, number=8)
    mine = StepRows(*(getattr(rows, name).clone().to(device) for name in rows.__slots__))
    follow = FollowUp(*(getattr(follow, name).to(device) for name in follow.__slots__))
    follow_up(
        mine, follow, decided.to(device), type(COLUMNS)(COLUMNS.draft_id, COLUMNS.position, COLUMNS.padding.to(device))
    )
    assert all(torch.equal(getattr(mine, name).cpu(), getattr(rows, name)) for name in rows.__slots__)
