"""Runs an EAGLE-3 head over whole texts as it will be used: from the target's features, then on its own output.

Step 0 is the pass over what is committed. In step s, row t stands for the s-th draft token after a commit that ended
with token t + 1: it gets token t + 1 + s and the output of row t in step s - 1. So it sees the keys of step 0 up to its
own row, and its own row's keys of the later steps; its position is t + s. Knows a head; no target, no loss.
"""

from __future__ import annotations

import torch
from torch.nn import functional

from slipstream.layers.attention import CosSin
from slipstream.models.eagle3 import Eagle3Model

PADDING = 0  # the token of rows that reach past the text; nobody looks at what comes of them


def unroll(
    head: Eagle3Model,
    features: torch.Tensor,  # [batch, time, hidden], the target's
    token_ids: torch.Tensor,  # [batch, time]
    num_steps: int,
) -> list[torch.Tensor]:
    """Outputs z of every step, [batch, time, hidden] each: row t of step s speaks of token t + 2 + s."""
    keys = _Keys()
    outputs = []
    for step in range(num_steps):
        tokens = functional.pad(token_ids[:, 1 + step :], (0, 1 + step), value=PADDING)
        embedded = functional.embedding(tokens, head.embedding)
        x, residual = head.layer.attention_input(embedded, features)
        positions = torch.arange(step, step + x.shape[1], device=x.device)
        attended = keys.attend(head, x, head.rotary(positions, x.dtype))
        features = head.layer.after_attention(attended, residual)
        outputs.append(features)
    return outputs


class _Keys:
    """Keys and values of all steps so far, [batch, heads, time, head_dim] each; shared ones are repeated."""

    def __init__(self) -> None:
        self._steps: list[tuple[torch.Tensor, torch.Tensor]] = []

    def attend(self, head: Eagle3Model, x: torch.Tensor, cos_sin: CosSin) -> torch.Tensor:
        attention = head.layer.attention
        query, key, value = (tensor.transpose(1, 2) for tensor in attention.project(x, cos_sin))
        sharing = query.shape[1] // key.shape[1]
        key, value = (tensor.repeat_interleave(sharing, dim=1) for tensor in (key, value))
        self._steps.append((key, value))
        if len(self._steps) == 1:
            mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        else:
            mixed = self._mix(query)
        output: torch.Tensor = attention.o_proj(mixed.transpose(1, 2).flatten(-2))
        return output

    def _mix(self, query: torch.Tensor) -> torch.Tensor:
        """One softmax over the first step's keys up to each row and the row's own keys of the later steps."""
        (first_keys, first_values), *later = self._steps
        time, scale = query.shape[2], query.shape[3] ** -0.5
        hidden = torch.ones(time, time, dtype=torch.bool, device=query.device).triu(1)
        scores = ((query @ first_keys.transpose(-1, -2)) * scale).masked_fill(hidden, -torch.inf)
        own = [(query * key).sum(-1, keepdim=True) * scale for key, _ in later]
        weights = torch.cat((scores, *own), -1).float().softmax(-1).to(query.dtype)
        mixed = weights[..., :time] @ first_values
        for index, (_, value) in enumerate(later):
            mixed = mixed + weights[..., time + index, None] * value
        return mixed
