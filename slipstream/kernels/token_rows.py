"""Where tokens that are rows of their own stand, and where their KV is written. The torch reference."""

from __future__ import annotations

import torch

from slipstream.kernels.dispatch import fused


def place_tokens(
    context_lens: torch.Tensor,  # [num_rows] int64: position + 1; 0 for padding
    block_tables: torch.Tensor,  # [num_rows, max_blocks]
    block_size: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Positions and slots, int64 [num_rows] each. Padding stands at position 0 and has slot -1."""
    if fused(context_lens):
        from slipstream.kernels.gpu import token_rows as gpu

        return gpu.place_tokens(context_lens, block_tables, block_size)
    return place_tokens_reference(context_lens, block_tables, block_size)


def place_tokens_reference(
    context_lens: torch.Tensor, block_tables: torch.Tensor, block_size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    positions = (context_lens - 1).clamp_min(0)
    blocks = block_tables.gather(1, (positions // block_size)[:, None])[:, 0].long()
    slots = blocks * block_size + positions % block_size
    return positions, slots.masked_fill(context_lens == 0, -1)
