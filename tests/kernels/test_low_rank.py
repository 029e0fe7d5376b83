"""Low-rank additions reach the rows of their slot and no others."""

from __future__ import annotations

import torch

from slipstream.kernels.low_rank import NO_ROW, TILE_ROWS, RowGroups, add_low_rank


def test_each_row_gets_the_product_of_its_own_slot() -> None:
    torch.manual_seed(0)
    x, down, up = torch.randn(6, 5), torch.randn(2, 3, 5), torch.randn(2, 4, 3)
    before = torch.randn(6, 4)
    output = before.clone()
    groups = RowGroups.of((1, None, 0, 1), (1, 2, 1, 2))
    assert groups is not None
    add_low_rank(output, x, down, up, groups)
    for row, slot in enumerate((1, None, None, 0, 1, 1)):
        added = torch.zeros(4) if slot is None else up[slot] @ (down[slot] @ x[row])
        torch.testing.assert_close(output[row], before[row] + added)
    assert torch.equal(output[1:3], before[1:3])


def test_a_batch_without_additions_has_no_groups() -> None:
    assert RowGroups.of((None, None), (3, 4)) is None


def test_tiles_hold_every_row_once_beside_rows_of_its_slot_only() -> None:
    groups = RowGroups.of((0, 1, None, 0), (TILE_ROWS, 2, 5, 3))
    assert groups is not None
    slots, rows = groups.tiles
    assert slots.tolist() == [0, 0, 1]
    held = [[row for row in tile if row != NO_ROW] for tile in rows.tolist()]
    assert held == [list(range(16)), [23, 24, 25], [16, 17]]
