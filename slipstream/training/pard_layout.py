"""Texts with masks behind them: what a parallel draft sees of its own future, at every place at once. Knows no model.

Real tokens first, then groups of masks. A mask of group g belongs to an *anchor*, a real token, and stands g positions
after it; it sees the real tokens up to the anchor and the masks of that anchor before it, as in the service, where the
anchor is the last token that is there. It is asked for the token one position after its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch.nn import functional

KEEP: Final = 0.7  # of the anchors, by each further group
LEAST: Final = 0.2  # of the anchors, by any group


@dataclass(frozen=True, eq=False, slots=True)
class ParallelLayout:
    """Of rows of one length: first their tokens, then masks. Group 0 are the tokens, each its own anchor."""

    anchors: torch.Tensor  # [packed length]
    groups: torch.Tensor  # [packed length]
    sizes: tuple[int, ...]  # of the groups; none is empty

    @classmethod
    def of(cls, length: int, groups: list[torch.Tensor]) -> ParallelLayout:
        """`groups[i]` are the anchors of group i + 1: so many of the first ones of the group before, in its order."""
        parts = [torch.arange(length, device=groups[0].device if groups else None), *groups]
        numbers = [torch.full_like(part, i) for i, part in enumerate(parts)]
        return cls(torch.cat(parts), torch.cat(numbers), tuple(len(part) for part in parts))

    @classmethod
    def complete(cls, length: int, num_draft_tokens: int) -> ParallelLayout:
        """Every token has all of its masks."""
        return cls.of(length, [torch.arange(length)] * (num_draft_tokens - 1))

    @classmethod
    def drawn(cls, length: int, num_draft_tokens: int, generator: torch.Generator) -> ParallelLayout:
        """Group g has max(KEEP ** g, LEAST) of the anchors, drawn so that no chain of masks has a gap."""
        order = torch.randperm(length, generator=generator)
        counts = [round(length * max(KEEP**group, LEAST)) for group in range(1, num_draft_tokens)]
        return cls.of(length, [order[:count] for count in counts])

    def to(self, device: torch.device) -> ParallelLayout:
        return ParallelLayout(self.anchors.to(device), self.groups.to(device), self.sizes)

    @property
    def positions(self) -> torch.Tensor:
        """[packed length]"""
        return self.anchors + self.groups

    def pack(
        self,
        token_ids: torch.Tensor,  # [rows, length]
        mask_token: int,
    ) -> torch.Tensor:
        """[rows, packed length]"""
        num_masks = len(self.anchors) - token_ids.shape[1]
        return functional.pad(token_ids, (0, num_masks), value=mask_token)

    def visible(self) -> torch.Tensor:
        """[packed length, packed length]: True where a row sees a column."""
        is_mask = self.groups > 0
        tokens = ~is_mask[None] & (self.anchors[None] <= self.anchors[:, None])
        chain = is_mask[None] & (self.anchors[None] == self.anchors[:, None])
        return tokens | (chain & (self.groups[None] <= self.groups[:, None]))
