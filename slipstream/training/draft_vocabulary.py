"""Which tokens a draft may propose: the most frequent ones of the target's own text. Knows counts; knows no model."""

from __future__ import annotations

from collections.abc import Iterable

import torch


def choose_tokens(written: torch.Tensor, size: int, vocab_size: int, always: Iterable[int]) -> torch.Tensor:
    """[size] ascending ids of the most frequent tokens of `written`, those of `always` among them."""
    check_size(size, vocab_size)
    counts = torch.bincount(written.flatten().long(), minlength=vocab_size)
    counts[list(always)] = counts.max() + 1
    return counts.topk(size).indices.sort().values


def check_size(size: int, vocab_size: int) -> None:
    if not 0 < size <= vocab_size:
        raise ValueError(f"draft_vocab_size is {size}; it must be in 1..{vocab_size}")


def coverage(written: torch.Tensor, tokens: torch.Tensor) -> float:
    """Share of the written tokens that a draft over `tokens` could have proposed."""
    return float(torch.isin(written.flatten(), tokens.to(written)).float().mean())


def offsets(tokens: torch.Tensor) -> torch.Tensor:
    """d2t: the target's id of draft token i is i + offsets[i]."""
    return tokens - torch.arange(len(tokens))


def draft_first(tokens: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """[vocab_size] all ids, those of `tokens` first: the row order of the target's head in training."""
    others = torch.ones(vocab_size, dtype=torch.bool)
    others[tokens] = False
    return torch.cat((tokens, others.nonzero().flatten()))
