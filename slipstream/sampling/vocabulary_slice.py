"""The part of the vocabulary that one of several ranks has logits of. Knows no law: only where the slice begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class VocabularySlice:
    """Of equally long slices, the last ones' ends padded with logits of -inf."""

    first_token: int  # divisible by 4, as noise comes in fours
    gather: Callable[[torch.Tensor], torch.Tensor]  # [rows, n, ...] of each rank -> all of them side by side
    vocab_size: int  # of the whole vocabulary, padding left out

    def whole(self, logits: torch.Tensor) -> torch.Tensor:
        """[num_rows, vocab] of every rank's slice [num_rows, slice]."""
        return self.gather(logits)[:, : self.vocab_size]
