"""Takes tokens out of rows of logits by packed masks, one bit a token: on a GPU by a kernel."""

from __future__ import annotations

import torch

from slipstream.kernels.dispatch import fused
from slipstream.sampling.token_masks import mask_tokens as mask_tokens_reference


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
