"""One softmax over a text's places and a few places of a row's own, for training. The torch reference and CPU path."""

from __future__ import annotations

from typing import cast

import torch


def chain_softmax(
    scores: torch.Tensor,  # [..., rows, places], queries times keys of a text
    own: torch.Tensor,  # [..., rows, num_own] fp32, of the row's own keys; at least one
    last: torch.Tensor,  # [rows], the last place of the text that each row sees
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights of the text's places in the scores' type, and of the own ones in fp32; they add up to 1. Differentiable.

    A compiler's fusion of the reference did not survive Triton 3.6, so GPUs have a kernel of our own.
    """
    if scores.is_cuda:
        from slipstream.kernels.gpu.chain_softmax import ChainSoftmax

        weights = ChainSoftmax.apply(scores, own, last, scale)  # type: ignore[no-untyped-call]
        return cast(tuple[torch.Tensor, torch.Tensor], weights)
    return chain_softmax_reference(scores, own, last, scale)


def chain_softmax_reference(
    scores: torch.Tensor, own: torch.Tensor, last: torch.Tensor, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    places = scores.shape[-1]
    unseen = torch.arange(places, device=scores.device) > last[:, None]
    joined = torch.cat((scores.to(own.dtype).masked_fill(unseen, -torch.inf), own), -1)
    weights, own_weights = (joined * scale).softmax(-1).split_with_sizes((places, own.shape[-1]), -1)
    return weights.to(scores.dtype), own_weights
