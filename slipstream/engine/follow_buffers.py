"""What a step behind a running one may come to, on its way to the device. Knows branches; no requests, no graphs.

Two places on the host take turns: the copy of one may not have begun when the next is written.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import torch

from slipstream.engine.successor import Successor
from slipstream.kernels.follow_up import NUM_BRANCHES, NUM_DRAFTS, PAD, FollowUp
from slipstream.kernels.gpu.check_table import NUM_COLUMNS

Ints = npt.NDArray[np.int32]
NUM_PLACES = 2


@dataclass(frozen=True, slots=True)
class _HostParts:
    """A FollowUp on the host, as numpy sees it."""

    counts: Ints
    bases: Ints
    accepted: Ints
    outcomes: Ints
    lengths: Ints
    drafts: Ints
    columns: Ints
    block_tables: Ints


class FollowBuffers:
    def __init__(self, *, most_seqs: int, max_blocks: int, device: torch.device) -> None:
        shapes = (
            (2,),
            (most_seqs,),
            *((most_seqs, NUM_BRANCHES),) * 3,
            (most_seqs, NUM_BRANCHES, NUM_DRAFTS),
            (most_seqs, NUM_COLUMNS),
            (most_seqs, max_blocks),
        )
        starts = list(accumulate((-(-math.prod(shape) // 4) * 4 for shape in shapes), initial=0))

        def parts(words: torch.Tensor) -> list[torch.Tensor]:
            return [
                words[start : start + math.prod(shape)].view(shape)
                for start, shape in zip(starts, shapes, strict=False)
            ]

        self._on_device = torch.zeros(starts[-1], dtype=torch.int32, device=device)
        self._places = [
            torch.zeros(starts[-1], dtype=torch.int32, pin_memory=device.type == "cuda") for _ in range(NUM_PLACES)
        ]
        self._hosts = [_HostParts(*(part.numpy() for part in parts(place))) for place in self._places]
        self._turn = 0
        self.inputs = FollowUp(*parts(self._on_device))

    def upload(
        self,
        number: int,  # of the step that the host wrote last, which this one follows, at once or behind others
        successors: Sequence[Successor],
        columns: Ints,  # [num_seqs, NUM_COLUMNS], what all rows of a sequence share
    ) -> None:
        """Writes the step and starts its copy. The step before the running one must have ended."""
        self._turn = (self._turn + 1) % NUM_PLACES
        _write(self._hosts[self._turn], number, successors, columns)
        self._on_device.copy_(self._places[self._turn], non_blocking=True)


def _write(parts: _HostParts, number: int, successors: Sequence[Successor], columns: Ints) -> None:
    count = len(successors)
    parts.counts[:] = number, count
    parts.bases[:count] = [one.check.base for one in successors]
    parts.columns[:count] = columns
    for row, one in zip(parts.block_tables, successors, strict=False):
        row[: len(one.block_ids)] = one.block_ids
    parts.accepted[:count] = PAD
    places = [(i, k) for i, one in enumerate(successors) for k in range(len(one.branches))]
    if not places:
        return
    branches = [branch for one in successors for branch in one.branches]
    at = tuple(np.array(places).T)
    parts.accepted[at] = [branch.num_accepted for branch in branches]
    parts.outcomes[at] = [branch.token_id for branch in branches]
    parts.lengths[at] = [len(branch.draft_ids) for branch in branches]
    parts.drafts[at] = [[*branch.draft_ids, *[PAD] * (NUM_DRAFTS - len(branch.draft_ids))] for branch in branches]
