"""The softmax of training's chains on a GPU, forward and backward. Knows rows of scores; see the reference for them."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def _chain_softmax_kernel(
    scores_ptr: tl.tensor,  # [num_rows, places]
    own_ptr: tl.tensor,  # [num_rows, num_own] fp32
    last_ptr: tl.tensor,  # [period] int32
    weights_ptr: tl.tensor,  # [num_rows, places]
    own_weights_ptr: tl.tensor,  # [num_rows, num_own] fp32
    scale: float,
    period: int,
    places: int,
    num_own: int,
    BLOCK: tl.constexpr,
    OWN_BLOCK: tl.constexpr,
) -> None:
    """weights, own_weights = softmax(scale * (scores up to `last`, own)), in fp32."""
    row = tl.program_id(0).to(tl.int64)
    last = tl.load(last_ptr + row % period)
    columns, own_columns = tl.arange(0, BLOCK), tl.arange(0, OWN_BLOCK)
    scores = tl.load(scores_ptr + row * places + columns, mask=columns <= last, other=float("-inf")).to(tl.float32)
    own = tl.load(own_ptr + row * num_own + own_columns, mask=own_columns < num_own, other=float("-inf"))
    peak = tl.maximum(tl.max(scores, 0), tl.max(own, 0))
    weights, own_weights = tl.exp((scores - peak) * scale), tl.exp((own - peak) * scale)
    total = tl.sum(weights, 0) + tl.sum(own_weights, 0)
    weights_out = (weights / total).to(weights_ptr.dtype.element_ty)
    tl.store(weights_ptr + row * places + columns, weights_out, mask=columns < places)
    tl.store(own_weights_ptr + row * num_own + own_columns, own_weights / total, mask=own_columns < num_own)


@triton.jit
def _chain_softmax_backward_kernel(
    weights_ptr: tl.tensor,  # [num_rows, places]
    own_weights_ptr: tl.tensor,  # [num_rows, num_own] fp32
    grad_ptr: tl.tensor,  # [num_rows, places], of the weights
    own_grad_ptr: tl.tensor,  # [num_rows, num_own] fp32, of the own weights
    scores_grad_ptr: tl.tensor,  # [num_rows, places]
    own_scores_grad_ptr: tl.tensor,  # [num_rows, num_own] fp32
    scale: float,
    places: int,
    num_own: int,
    BLOCK: tl.constexpr,
    OWN_BLOCK: tl.constexpr,
) -> None:
    """scores_grad = scale * weights * (grad - sum(weights * grad)), the sum over both kinds."""
    row = tl.program_id(0).to(tl.int64)
    columns, own_columns = tl.arange(0, BLOCK), tl.arange(0, OWN_BLOCK)
    inside, own_inside = columns < places, own_columns < num_own
    weights = tl.load(weights_ptr + row * places + columns, mask=inside, other=0.0).to(tl.float32)
    grad = tl.load(grad_ptr + row * places + columns, mask=inside, other=0.0).to(tl.float32)
    own_weights = tl.load(own_weights_ptr + row * num_own + own_columns, mask=own_inside, other=0.0)
    own_grad = tl.load(own_grad_ptr + row * num_own + own_columns, mask=own_inside, other=0.0)
    mean = tl.sum(weights * grad, 0) + tl.sum(own_weights * own_grad, 0)
    scores_grad = (scale * weights * (grad - mean)).to(scores_grad_ptr.dtype.element_ty)
    tl.store(scores_grad_ptr + row * places + columns, scores_grad, mask=inside)
    own_scores_grad = scale * own_weights * (own_grad - mean)
    tl.store(own_scores_grad_ptr + row * num_own + own_columns, own_scores_grad, mask=own_inside)


class ChainSoftmax(torch.autograd.Function):
    """Shapes as `chain_softmax_reference` has them."""

    @staticmethod
    def forward(
        ctx: Any, scores: torch.Tensor, own: torch.Tensor, last: torch.Tensor, scale: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        scores, own = scores.contiguous(), own.float().contiguous()
        places, num_own, period = scores.shape[-1], own.shape[-1], scores.shape[-2]
        weights, own_weights = torch.empty_like(scores), torch.empty_like(own)
        blocks = {"BLOCK": triton.next_power_of_2(places), "OWN_BLOCK": max(2, triton.next_power_of_2(num_own))}
        _chain_softmax_kernel[(scores.numel() // places,)](
            scores, own, last.int(), weights, own_weights, scale, period, places, num_own, **blocks, num_warps=4
        )
        ctx.save_for_backward(weights, own_weights)
        ctx.scale, ctx.blocks = scale, blocks
        return weights, own_weights

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None, None]:
        weights, own_weights = ctx.saved_tensors
        grad, own_grad = (gradient.contiguous() for gradient in gradients)
        scores_grad, own_scores_grad = torch.empty_like(weights), torch.empty_like(own_weights)
        places, num_own = weights.shape[-1], own_weights.shape[-1]
        _chain_softmax_backward_kernel[(weights.numel() // places,)](
            weights, own_weights, grad, own_grad, scores_grad, own_scores_grad, ctx.scale, places, num_own,
            **ctx.blocks, num_warps=4,
        )  # fmt: skip
        return scores_grad, own_scores_grad, None, None
