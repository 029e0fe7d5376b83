"""The adapters' share of one product: slots of low-rank matrices, filled and emptied at run time. Knows no names."""

from __future__ import annotations

import torch

from slipstream.kernels.low_rank import RowGroups, add_low_rank


class LowRank:
    """Memory for `num_slots` additions of at most `rank` to a product [width, depth]; empty slots add zeros."""

    def __init__(self, num_slots: int, rank: int, width: int, depth: int, like: torch.Tensor) -> None:
        self._down = like.new_zeros(num_slots, rank, depth)
        self._up = like.new_zeros(num_slots, width, rank)

    @property
    def bytes_per_slot(self) -> int:
        return (self._down.nbytes + self._up.nbytes) // self._down.shape[0]

    def add_to(self, output: torch.Tensor, x: torch.Tensor, groups: RowGroups) -> None:
        """In place: [num_rows, width], of x [num_rows, depth]."""
        add_low_rank(output, x, self._down, self._up, groups)

    def clear(self, slot: int) -> None:
        self._down[slot].zero_()
        self._up[slot].zero_()

    def fill(
        self,
        slot: int,
        matrices: tuple[torch.Tensor, torch.Tensor],  # [r, depth]; [rows, r], scaled
        first_rank: int,
        first_row: int,
    ) -> None:
        """One of the matrices that a fused product consists of: its ranks and rows are its own."""
        down, up = matrices
        ranks = slice(first_rank, first_rank + len(down))
        self._down[slot, ranks] = down.to(self._down)
        self._up[slot, first_row : first_row + len(up), ranks] = up.to(self._up)
