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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import torch

LOSSES = ("kl", "lk_hybrid")


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


def log_total(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """[tokens, vocab] to the logarithm of what a softmax divides by, [tokens, 1] fp32."""
    return torch.logsumexp(logits.float() / temperature, -1, keepdim=True)


def loss_and_gradient(
    draft_logits: torch.Tensor,  # [tokens, draft vocab]
    target_logits: torch.Tensor,  # [tokens, draft vocab], of the same tokens
    target_total: torch.Tensor,  # [tokens, 1], `log_total` of all the target's logits
    objective: Objective,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Loss of every token, its gradient [tokens, draft vocab] in the logits' type, and every token's acceptance."""
    draft_log = torch.log_softmax(draft_logits.float() / objective.temperature, -1)
    target = target_logits.float() / objective.temperature
    shared = torch.logsumexp(target, -1, keepdim=True)
    mass = torch.exp(shared - target_total)
    draft_probs, shared_log = draft_log.exp(), target - shared
    shared_probs = shared_log.exp()
    target_probs = mass * shared_probs
    accepted = torch.minimum(target_probs, draft_probs).sum(-1)
    loss = (target_probs * (shared_log - draft_log)).sum(-1)
    gradient = mass * (draft_probs - shared_probs) / objective.temperature
    if objective.kind == "kl":
        return loss, gradient.to(draft_logits.dtype), accepted
    weight = torch.exp(-3 * accepted)
    below = torch.where(draft_probs < target_probs, draft_probs, 0.0)
    # Of 1 - accepted: moving mass to tokens where the draft has too little is all that helps.
    missed_gradient = (draft_probs * below.sum(-1, keepdim=True) - below) / objective.temperature
    loss = weight * loss + (1 - weight) * (1 - accepted)
    gradient = weight[:, None] * gradient + (1 - weight[:, None]) * missed_gradient
    return loss, gradient.to(draft_logits.dtype), accepted


class LossParts(NamedTuple):
    """What is done with logits; it may be compiled."""

    log_total: Callable[[torch.Tensor, float], torch.Tensor] = log_total
    loss_and_gradient: Callable[
        [torch.Tensor, torch.Tensor, torch.Tensor, Objective], tuple[torch.Tensor, torch.Tensor, torch.Tensor]
    ] = loss_and_gradient


PLAIN: Final = LossParts()


@torch.no_grad()
def chunked_loss(
    drafts: Sequence[torch.Tensor],  # [tokens, hidden] each: of several drafts of the same tokens
    target_hidden: torch.Tensor,  # [tokens, target hidden]
    heads: tuple[
        torch.Tensor, torch.Tensor
    ],  # [draft vocab, hidden], [vocab, target hidden] with the draft's rows first
    objective: Objective,
    chunk: int,
    parts: LossParts = PLAIN,
) -> list[LossSums]:
    """Logits of a whole batch would be tens of gigabytes, so only `chunk` tokens' exist at a time."""
    draft_head, target_head = heads
    gradients = [torch.empty_like(hidden) for hidden in drafts]
    sums = torch.zeros(len(drafts), 2, dtype=torch.float32, device=target_hidden.device)
    for start in range(0, len(target_hidden), chunk):
        rows = slice(start, start + chunk)
        logits = target_hidden[rows] @ target_head.T
        total, logits = parts.log_total(logits, objective.temperature), logits[:, : len(draft_head)]
        for hidden, gradient, its_sums in zip(drafts, gradients, sums, strict=True):
            loss, logits_gradient, accepted = parts.loss_and_gradient(
                hidden[rows] @ draft_head.T, logits, total, objective
            )
            gradient[rows] = logits_gradient @ draft_head / len(target_hidden)
            its_sums += torch.stack((loss.sum(), accepted.sum()))
    return [LossSums(its_sums[0], its_sums[1], gradient) for its_sums, gradient in zip(sums, gradients, strict=True)]
