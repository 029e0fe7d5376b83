"""Runs an EAGLE-3 head over whole texts as it will be used: from the target's features, then on its own output.

Step 0 is the pass over what is committed. In step s, row t stands for the s-th draft token after a commit that ended
with token t + 1: it gets token t + 1 + s and the output of row t in step s - 1. So it sees the keys of step 0 up to its
own row, and its own row's keys of the later steps; its position is t + s. Knows a head; no target, no loss.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from slipstream.models.eagle3 import Eagle3Model
from slipstream.training.chain_attention import KeyValue, chain_attention

PADDING = 0  # the token of rows that reach past the text; nobody looks at what comes of them


def unroll(
    head: Eagle3Model,
    features: torch.Tensor,  # [batch, time, hidden], the target's
    token_ids: torch.Tensor,  # [batch, time]
    num_steps: int,
) -> list[torch.Tensor]:
    """Outputs z of every step, [batch, time, hidden] each: row t of step s speaks of token t + 2 + s."""
    time = token_ids.shape[1]
    last = torch.arange(time, device=token_ids.device)
    steps: list[KeyValue] = []
    outputs = []
    for step in range(num_steps):
        tokens = functional.pad(token_ids[:, 1 + step :], (0, 1 + step), value=PADDING)
        x, residual = head.layer.attention_input(functional.embedding(tokens, head.embedding), features)
        cos_sin = head.rotary(torch.arange(step, step + time, device=x.device), x.dtype)
        query, key, value = (tensor.transpose(1, 2) for tensor in head.layer.attention.project(x, cos_sin))
        steps.append((key, value))
        mixed = _first(query, key, value) if step == 0 else chain_attention(query, steps[0], steps[1:], last)
        features = head.layer.after_attention(head.layer.attention.o_proj(mixed.transpose(1, 2).flatten(-2)), residual)
        outputs.append(features)
    return outputs


def _first(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    grouped = query.shape[1] != key.shape[1]
    return functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=grouped)
