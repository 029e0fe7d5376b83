"""The written-out gradients against autograd, and what the losses measure."""

from __future__ import annotations

import pytest
import torch

from slipstream.training.losses import Objective, chunked_loss, log_total, loss_and_gradient

VOCAB, DRAFT_VOCAB = 12, 7


def plain_loss(
    draft_logits: torch.Tensor, target_logits: torch.Tensor, objective: Objective
) -> tuple[torch.Tensor, torch.Tensor]:
    """The module's equations, as they stand there."""
    target_probs = torch.softmax(target_logits / objective.temperature, -1)[:, :DRAFT_VOCAB]
    mass = target_probs.sum(-1, keepdim=True)
    draft_probs = torch.softmax(draft_logits / objective.temperature, -1)
    shared = target_probs / mass
    kl = (mass * shared * (shared / draft_probs).log()).sum(-1)
    accepted = torch.minimum(target_probs, draft_probs).sum(-1)
    if objective.kind == "kl":
        return kl, accepted
    weight = torch.exp(-3 * accepted).detach()
    return weight * kl + (1 - weight) * (1 - accepted), accepted


def logits(rows: int, columns: int, seed: int) -> torch.Tensor:
    return 2 * torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def whole(
    draft: torch.Tensor, target: torch.Tensor, objective: Objective
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    total = log_total(target, objective.temperature)
    return loss_and_gradient(draft, target[:, :DRAFT_VOCAB], total, objective)


@pytest.mark.parametrize("kind", ["kl", "lk_hybrid"])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_loss_and_gradient_are_those_of_the_equations(kind: str, temperature: float) -> None:
    objective = Objective(kind, temperature)
    draft, target = logits(5, DRAFT_VOCAB, 0).requires_grad_(), logits(5, VOCAB, 1)
    expected, expected_accepted = plain_loss(draft, target, objective)
    expected.sum().backward()
    loss, gradient, accepted = whole(draft.detach(), target, objective)
    torch.testing.assert_close(loss.double(), expected.detach(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradient.double(), draft.grad, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(accepted.double(), expected_accepted.detach(), rtol=1e-5, atol=1e-6)


def test_a_draft_equal_to_a_target_without_other_tokens_loses_nothing() -> None:
    draft = logits(3, DRAFT_VOCAB, 0)
    target = torch.cat((draft, torch.full((3, VOCAB - DRAFT_VOCAB), -torch.inf)), 1)
    loss, _, accepted = whole(draft, target, Objective("lk_hybrid"))
    assert loss.abs().max() < 1e-6
    torch.testing.assert_close(accepted, torch.ones(3))


def test_chunks_change_nothing() -> None:
    drafts, heads = [torch.randn(10, 6), torch.randn(10, 6)], (torch.randn(DRAFT_VOCAB, 6), torch.randn(VOCAB, 8))
    target_hidden = torch.randn(10, 8)
    at_once = chunked_loss(drafts, target_hidden, heads, Objective("lk_hybrid"), chunk=100)
    in_parts = chunked_loss(drafts, target_hidden, heads, Objective("lk_hybrid"), chunk=3)
    for part, expected in zip(in_parts, at_once, strict=True):
        torch.testing.assert_close(part.loss, expected.loss)
        torch.testing.assert_close(part.hidden_grad, expected.hidden_grad)


def test_the_hidden_gradient_is_that_of_each_drafts_mean_loss() -> None:
    heads, target_hidden = (torch.randn(DRAFT_VOCAB, 6), torch.randn(VOCAB, 8)), torch.randn(10, 8)
    drafts = [torch.randn(10, 6, requires_grad=True) for _ in range(2)]
    detached = [hidden.detach() for hidden in drafts]
    sums = chunked_loss(detached, target_hidden, heads, Objective("lk_hybrid"), chunk=4)
    for hidden, its_sums in zip(drafts, sums, strict=True):
        plain_loss(hidden @ heads[0].T, target_hidden @ heads[1].T, Objective("lk_hybrid"))[0].mean().backward()
        torch.testing.assert_close(its_sums.hidden_grad, hidden.grad, rtol=1e-4, atol=1e-6)


def test_unknown_losses_and_temperatures_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'ce'"):
        Objective("ce")
    with pytest.raises(ValueError, match="temperature is 0"):
        Objective("kl", 0.0)
