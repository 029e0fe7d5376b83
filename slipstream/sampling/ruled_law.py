"""Logits under the token rules of their rows, on whatever device they are. Knows no drafts, no noise, no grammar."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from slipstream.kernels.token_mask import mask_tokens
from slipstream.kernels.token_rules import apply_token_rules
from slipstream.sampling.rule_rows import RowContext, pack_rules, to_device


def ruled_logits(
    logits: torch.Tensor,  # [num_rows, vocab] fp32; left as it is
    rows: Sequence[RowContext],  # one per row, or none at all
) -> torch.Tensor:
    """[num_rows, vocab]: penalties, bias and bad words applied; the very tensor if no row has rules.

    Allowed ids are not: the verifier has them in its token masks.
    """
    words = pack_rules(rows, logits.shape[1])
    if words is None:
        return logits
    ruled = logits.clone()
    apply_token_rules(ruled, to_device(words, logits.device))
    return ruled


def drafting_logits(
    logits: torch.Tensor,  # [num_rows, vocab] fp32, of a draft model; left as it is
    rows: Sequence[RowContext],  # one per row
) -> torch.Tensor:
    """The same with allowed ids, for a drafter. A row that has no token left keeps its logits: it drafts in vain."""
    ruled = ruled_logits(logits, rows)
    if ruled is logits:
        return logits
    masks = [(row, context.rules.mask(logits.shape[1])) for row, context in enumerate(rows) if context.rules]
    masked = [(row, mask) for row, mask in masks if mask is not None]
    if masked:
        bits = torch.from_numpy(np.stack([mask for _, mask in masked]))
        chosen = torch.tensor([row for row, _ in masked], dtype=torch.int32)
        mask_tokens(ruled, chosen.to(logits.device), bits.to(logits.device))
    return torch.where(ruled.isinf().all(-1, keepdim=True), logits, ruled)
