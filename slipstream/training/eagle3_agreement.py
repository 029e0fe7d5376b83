"""Where an EAGLE-3 head's drafts would be the target's own text. Knows head and target; nothing of training."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from slipstream.engine.feature_tap import FEATURE_DTYPE
from slipstream.models.llama import LlamaModel
from slipstream.training.eagle3_head import FreshHead
from slipstream.training.eagle3_unroll import unroll


@torch.no_grad()
def agreements(
    head: FreshHead,
    target: LlamaModel,
    tokens: torch.Tensor,  # [draft vocab] ids of the target
    token_ids: torch.Tensor,  # [rows, length]
    num_draft_tokens: int,
) -> npt.NDArray[np.bool_]:
    """[rows, length, num_draft_tokens]: given the text before position p, draft token s is what stands at p + s.

    While drafts are right the text is what the head feeds itself with, so its unrolled pass over the text drafts from
    every position at once.
    """
    device = target.embedding.device
    rows, length = token_ids.shape
    result = torch.zeros(rows, length, num_draft_tokens, dtype=torch.bool, device=device)
    for row, agrees in zip(token_ids.to(device).long(), result, strict=True):
        states = target.forward_dense_tapped(row[None], head.config.layer_ids)[1]
        features = head.features(states).to(FEATURE_DTYPE).to(target.embedding.dtype)  # as they are sent
        for step, z in enumerate(unroll(head.model, features, row[None], num_draft_tokens)):
            drafted = tokens.to(device)[head.model.logits(z[0]).argmax(-1)]
            known = length - 2 - step  # rows whose token is within the text
            agrees[2 : 2 + known, step] = drafted[:known] == row[2 + step :]
    return np.asarray(result.cpu().numpy())
