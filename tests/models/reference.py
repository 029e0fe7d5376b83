"""Transformers as the judge of our models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM


def reference_model(path: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()


@torch.inference_mode()
def reference_logits(path: Path, token_ids: Sequence[int]) -> torch.Tensor:
    """[num_tokens, vocab] fp32."""
    logits: torch.Tensor = reference_model(path)(torch.tensor([token_ids])).logits[0]
    return logits


@torch.inference_mode()
def reference_greedy(path: Path, token_ids: Sequence[int], num_tokens: int) -> list[int]:
    """The tokens that transformers' generate appends."""
    output = reference_model(path).generate(
        torch.tensor([token_ids]), max_new_tokens=num_tokens, do_sample=False, pad_token_id=0
    )
    new: list[int] = output[0, len(token_ids) :].tolist()
    return new
