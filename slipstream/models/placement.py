"""Puts a checkpoint's tensor where one rank's model keeps it. Knows slots and ranks; no files, no layers."""

from __future__ import annotations

import torch

from slipstream.models.checkpoint import StoredTensor
from slipstream.models.weight_names import Slot
from slipstream.parallel.shard import Shard


@torch.no_grad()
def place(
    parameter: torch.Tensor,  # of this rank, perhaps with other tensors' rows above and below
    slot: Slot,
    tensor: StoredTensor,  # of the slot's shape
    shard: Shard,
) -> None:
    """Copies the rank's part, and reads no more of the tensor than that; where it has run out, zeros follow."""
    if not slot.piece:
        parameter[slot.start : slot.start + slot.shape[0]].copy_(tensor[(slice(None),)])
        return
    rows = slot.piece if slot.axis == 0 else slot.shape[0]
    target = parameter[slot.start : slot.start + rows]
    first = min(shard.rank * slot.piece, slot.shape[slot.axis])
    length = min(slot.piece, slot.shape[slot.axis] - first)
    if length:
        part = (slice(None),) * slot.axis + (slice(first, first + length),)
        target.narrow(slot.axis, 0, length).copy_(tensor[part])
    target.narrow(slot.axis, length, slot.piece - length).zero_()
