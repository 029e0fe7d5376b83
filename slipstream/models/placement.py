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
    """Copies the rank's part, and reads no more of the tensor than that; where it has run out, zeros follow.

    Raises ValueError if these are no weights as they are computed with.
    """
    if not slot.piece:
        parameter[slot.start : slot.start + slot.shape[0]].copy_(_weights(tensor, (slice(None),)))
        return
    rows = slot.piece if slot.axis == 0 else slot.shape[0]
    target = parameter[slot.start : slot.start + rows]
    first = min(shard.rank * slot.piece, slot.shape[slot.axis])
    length = min(slot.piece, slot.shape[slot.axis] - first)
    if length:
        part = (slice(None),) * slot.axis + (slice(first, first + length),)
        target.narrow(slot.axis, 0, length).copy_(_weights(tensor, part))
    target.narrow(slot.axis, length, slot.piece - length).zero_()


def _weights(tensor: StoredTensor, part: tuple[slice, ...]) -> torch.Tensor:
    weights = tensor[part]
    if not weights.is_floating_point() or weights.element_size() < 2:
        raise ValueError(f"is {weights.dtype}, of a quantised model; give one in bfloat16, float16 or float32")
    return weights
