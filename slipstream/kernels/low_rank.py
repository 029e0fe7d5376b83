"""Low-rank additions to a product, different ones for different rows. Knows slots and rows; not what an adapter is.

The torch reference and CPU path.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from slipstream.kernels.dispatch import fused

TILE_ROWS = 16  # rows that a GPU program takes: the least that a tensor core does
NO_ROW = -1  # pads a tile


@dataclass(frozen=True, eq=False)
class RowGroups:
    """The rows of a batch that have an addition, by its slot; all others are in no group and cost nothing."""

    groups: tuple[tuple[int, torch.Tensor], ...]  # slot, its rows [num_rows] int64

    @classmethod
    def of(
        cls, slots: Sequence[int | None], lengths: Sequence[int], device: torch.device | None = None
    ) -> RowGroups | None:
        """Of parts of a batch one after another: each part's slot and its number of rows. None if no part has one."""
        rows: defaultdict[int, list[int]] = defaultdict(list)
        start = 0
        for slot, length in zip(slots, lengths, strict=True):
            if slot is not None and length:
                rows[slot] += range(start, start + length)
            start += length
        if not rows:
            return None
        return cls(tuple((slot, torch.tensor(own, device=device)) for slot, own in sorted(rows.items())))

    @cached_property
    def tiles(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The same cut into tiles: slots [num_tiles] int32, rows [num_tiles, TILE_ROWS] int32; made once a pass."""
        slots, tiles = [], []
        for slot, rows in self.groups:
            for tile in torch.split(rows, TILE_ROWS):
                slots.append(slot)
                tiles.append(torch.nn.functional.pad(tile.int(), (0, TILE_ROWS - len(tile)), value=NO_ROW))
        stacked = torch.stack(tiles)
        return torch.tensor(slots, dtype=torch.int32, device=stacked.device), stacked


class RowSlots(RowGroups):
    """The same of rows whose slots only the device knows, so that a graph can hold them: a tile for each row."""

    def __init__(
        self,
        slots: torch.Tensor,  # [num_rows] int32, negative: no addition
    ) -> None:
        super().__init__(() if slots.is_cuda else _groups_of(slots))
        object.__setattr__(self, "slots", slots)

    slots: torch.Tensor

    @cached_property
    def tiles(self) -> tuple[torch.Tensor, torch.Tensor]:
        rows = torch.arange(len(self.slots), dtype=torch.int32, device=self.slots.device)
        tiles = rows.new_full((len(rows), TILE_ROWS), NO_ROW)
        tiles[:, 0] = rows.masked_fill(self.slots < 0, NO_ROW)
        return self.slots.clamp_min(0), tiles


def _groups_of(slots: torch.Tensor) -> tuple[tuple[int, torch.Tensor], ...]:
    """For the reference, which looks at them on the host."""
    return tuple((slot, (slots == slot).nonzero()[:, 0]) for slot in sorted(set(slots.tolist())) if slot >= 0)


def add_low_rank(
    output: torch.Tensor,  # [num_rows, width], added to in place
    x: torch.Tensor,  # [num_rows, depth]
    down: torch.Tensor,  # [num_slots, rank, depth]
    up: torch.Tensor,  # [num_slots, width, rank]
    groups: RowGroups,
) -> None:
    """output[row] += up[slot] . (down[slot] . x[row]) for each row of each group."""
    if fused(x):
        from slipstream.kernels.gpu import low_rank as gpu

        gpu.add_low_rank(output, x, down, up, groups)
    else:
        add_low_rank_reference(output, x, down, up, groups)


def add_low_rank_reference(
    output: torch.Tensor, x: torch.Tensor, down: torch.Tensor, up: torch.Tensor, groups: RowGroups
) -> None:
    for slot, rows in groups.groups:
        output.index_add_(0, rows, x.index_select(0, rows) @ down[slot].T @ up[slot].T)
