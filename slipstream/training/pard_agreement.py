"""Where a parallel draft's blocks would be the target's own text. Knows the draft; nothing of training."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from slipstream.models.llama import LlamaModel
from slipstream.training.acceptance import Acceptance, deep_acceptance
from slipstream.training.held_out import HeldOut
from slipstream.training.pard_layout import ParallelLayout


def parallel_acceptance(
    draft: LlamaModel, tokens: torch.Tensor, mask_token: int, held_out: HeldOut, num_draft_tokens: int
) -> Acceptance:
    """Of greedy drafting. `tokens` are the target's ids of the draft's vocabulary."""
    matches = agreements(draft, tokens, mask_token, held_out.token_ids, num_draft_tokens)
    return deep_acceptance([row[first:end] for row, (first, end) in zip(matches, held_out.spans, strict=True)])


@torch.no_grad()
def agreements(
    draft: LlamaModel,
    tokens: torch.Tensor,  # [draft vocab] ids of the target
    mask_token: int,
    token_ids: torch.Tensor,  # [rows, length]
    num_draft_tokens: int,
) -> npt.NDArray[np.bool_]:
    """[rows, length, num_draft_tokens]: given the text before position p, draft token s is what stands at p + s."""
    device = draft.embedding.device
    rows, length = token_ids.shape
    layout = ParallelLayout.complete(length, num_draft_tokens).to(device)
    visible, tokens = layout.visible(), tokens.to(device)
    result = torch.zeros(rows, length, num_draft_tokens, dtype=torch.bool, device=device)
    for row, agrees in zip(token_ids.to(device).long(), result, strict=True):
        hidden = draft.forward_dense(layout.pack(row[None], mask_token), layout.positions[None], visible)[0]
        drafted = tokens[draft.logits(hidden).argmax(-1)].view(num_draft_tokens, length)  # by group and anchor
        for step in range(num_draft_tokens):
            known = length - 1 - step  # anchors whose token is within the text
            agrees[1 : 1 + known, step] = drafted[step, :known] == row[1 + step :]
    return np.asarray(result.cpu().numpy())
