"""Takes tokens out of rows of logits by packed masks, one bit a token. The torch reference and CPU path."""

from __future__ import annotations

import torch

from slipstream.kernels.dispatch import fused


def mask_tokens(
    logits: torch.Tensor,  # [num_rows, vocab], changed in place
    rows: torch.Tensor,  # [num_masks] int32: the row of each mask, all different
    bits: torch.Tensor,  # [num_masks, >= ceil(vocab / 32)] int32: bit t & 31 of word t >> 5 is 1 where token t may come
) -> None:
    """Sets the logits of the tokens that may not come to -inf."""
    if fused(logits):
        from slipstream.kernels.gpu import token_mask as gpu

        return gpu.mask_tokens(logits, rows, bits)
    return mask_tokens_reference(logits, rows, bits)


def mask_tokens_reference(logits: torch.Tensor, rows: torch.Tensor, bits: torch.Tensor) -> None:
    num_words = -(-logits.shape[1] // 32)
    octets = bits[:, :num_words].contiguous().view(torch.uint8)  # little-endian: the lowest bits come first
    shifts = torch.arange(8, dtype=torch.uint8, device=bits.device)
    allowed = (octets[:, :, None] >> shifts & 1).view(len(bits), -1)[:, : logits.shape[1]].bool()
    chosen = rows.long()
    logits[chosen] = logits[chosen].masked_fill_(~allowed, -torch.inf)
