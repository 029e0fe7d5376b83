"""Copies KV blocks by a list on the device, so that a graph can hold it. The torch reference."""

from __future__ import annotations

import torch

from slipstream.kernels.dispatch import fused


def copy_blocks(
    blocks: torch.Tensor,  # [2, num_layers, num_blocks, ...] contiguous, written in place
    pairs: torch.Tensor,  # [num_pairs, 2] int32: source, destination; a negative source copies nothing
) -> None:
    """No destination may be a source, nor stand twice."""
    if fused(blocks):
        from slipstream.kernels.gpu import copy_blocks as gpu

        gpu.copy_blocks(blocks, pairs)
    else:
        copy_blocks_reference(blocks, pairs)


def copy_blocks_reference(blocks: torch.Tensor, pairs: torch.Tensor) -> None:
    sources, destinations = pairs[pairs[:, 0] >= 0].long().unbind(1)
    blocks[:, :, destinations] = blocks[:, :, sources]
