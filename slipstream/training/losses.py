"""How far a draft's distribution is from the target's, and the gradient of that. Knows logits; knows no model.

Both distributions are taken at one temperature, that which the draft is to serve best (a low one stands for greedy).
The draft covers the first columns of the target's logits: the target's head is ordered so. With `shared` the target's
law over the draft's tokens, normalised, and `mass` the probability that the target gave them together:

    kl        = mass * sum shared * log(shared / draft)
    accepted  = sum min(target, draft)
    lk_hybrid = weight * kl + (1 - weight) * (1 - accepted)     with weight = exp(-3 accepted), held constant

Gradients with respect to the draft's logits are written out: autograd would keep ten arrays of [tokens, vocab].
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

LOSSES = ("kl", "lk_hybrid")
LossFn = Callable[[torch.Tensor, torch.Tensor, "Objective"], tuple[torch.Tensor, torch.Tensor, torch.Tensor]]


@dataclass(frozen=True, slots=True)
class Objective:
    kind: str = "lk_hybrid"  # one of LOSSES
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in LOSSES:
            raise ValueError(f"loss is {self.kind!r}; it must be one of {', '.join(LOSSES)}")
        if not self.temperature > 0:
            raise ValueError(f"temperature is {self.temperature}; it must be > 0 (0.5 stands for greedy)")


@dataclass(frozen=True, slots=True)
class LossSums:
    """Sums over tokens, and the gradient of the mean loss with respect to the draft's hidden states."""

    loss: torch.Tensor  # scalar
    accepted: torch.Tensor  # scalar: sum of sum min(p, q)
    hidden_grad: torch.Tensor  # [tokens, hidden]


def loss_and_gradient(
    draft_logits: torch.Tensor,  # [tokens, draft vocab]
    target_logits: torch.Tensor,  # [tokens, vocab], the draft's tokens first
    objective: Objective,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Loss of every token, its gradient [tokens, draft vocab], and every token's acceptance."""
    draft_vocab = draft_logits.shape[-1]
    draft_log = torch.log_softmax(draft_logits.float() / objective.temperature, -1)
    target_all = target_logits.float() / objective.temperature
    target = target_all[:, :draft_vocab]
    shared = torch.logsumexp(target, -1, keepdim=True)
    mass = torch.exp(shared - torch.logsumexp(target_all, -1, keepdim=True))
    draft_probs, shared_log = draft_log.exp(), target - shared
    shared_probs = shared_log.exp()
    target_probs = mass * shared_probs
    accepted = torch.minimum(target_probs, draft_probs).sum(-1)
    loss = (target_probs * (shared_log - draft_log)).sum(-1)
    gradient = mass * (draft_probs - shared_probs) / objective.temperature
    if objective.kind == "kl":
        return loss, gradient, accepted
    weight = torch.exp(-3 * accepted)
    below = torch.where(draft_probs < target_probs, draft_probs, 0.0)
    # Of 1 - accepted: moving mass to tokens where the draft has too little is all that helps.
    missed_gradient = (draft_probs * below.sum(-1, keepdim=True) - below) / objective.temperature
    loss = weight * loss + (1 - weight) * (1 - accepted)
    return loss, weight[:, None] * gradient + (1 - weight[:, None]) * missed_gradient, accepted


@torch.no_grad()
def chunked_loss(
    draft_hidden: torch.Tensor,  # [tokens, hidden]
    target_hidden: torch.Tensor,  # [tokens, target hidden]
    heads: tuple[
        torch.Tensor, torch.Tensor
    ],  # [draft vocab, hidden], [vocab, target hidden] with the draft's rows first
    objective: Objective,
    chunk: int,
    loss_fn: LossFn = loss_and_gradient,
) -> LossSums:
    """Logits of a whole batch would be tens of gigabytes, so only `chunk` tokens' exist at a time."""
    draft_head, target_head = heads
    grad = torch.empty_like(draft_hidden)
    sums = torch.zeros(2, dtype=torch.float32, device=draft_hidden.device)
    for start in range(0, len(draft_hidden), chunk):
        rows = slice(start, start + chunk)
        loss, logits_grad, accepted = loss_fn(
            draft_hidden[rows] @ draft_head.T, target_hidden[rows] @ target_head.T, objective
        )
        grad[rows] = (logits_grad / len(draft_hidden)).to(draft_head.dtype) @ draft_head
        sums += torch.stack((loss.sum(), accepted.sum()))
    return LossSums(sums[0], sums[1], grad)
