"""Keeps evaluation prompts out of training text. Knows token ids; knows no text and no model.

A training row that holds any `WINDOW` consecutive tokens of an evaluation prompt's user text is left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

WINDOW = 8
_BASE = 1_000_003  # of a polynomial hash over 64-bit integers that wrap


def contaminated(
    token_ids: torch.Tensor,  # [rows, length]
    questions: Sequence[Sequence[int]],  # user texts of the evaluation prompts
) -> torch.Tensor:
    """[rows] bool: shares WINDOW consecutive tokens with a question. A shorter question counts whole."""
    shared = torch.zeros(len(token_ids), dtype=torch.bool, device=token_ids.device)
    for size in {min(WINDOW, len(question)) for question in questions}:
        windows = [_hashes(torch.tensor([list(q)]), size).flatten() for q in questions if min(WINDOW, len(q)) == size]
        if token_ids.shape[1] >= size:
            shared |= torch.isin(_hashes(token_ids, size), torch.cat(windows).to(token_ids.device)).any(1)
    return shared


def require_apart(token_ids: torch.Tensor, questions: Sequence[Sequence[int]]) -> None:
    """Raises ValueError if any training row shares text with an evaluation prompt."""
    if rows := int(contaminated(token_ids, questions).sum()):
        raise ValueError(f"{rows} training rows share {WINDOW} tokens with an evaluation prompt; leave them out")


def _hashes(token_ids: torch.Tensor, size: int) -> torch.Tensor:
    """[rows, length - size + 1]"""
    windows = token_ids.shape[1] - size + 1
    total = torch.zeros((len(token_ids), windows), dtype=torch.int64, device=token_ids.device)
    for offset in range(size):
        total = total * _BASE + token_ids[:, offset : offset + windows]
    return total
