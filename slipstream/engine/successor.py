"""What a sequence does in the step behind a running one, by how that ends for it. Knows no tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slipstream.kernels.follow_up import NUM_BRANCHES, NUM_DRAFTS
from slipstream.sampling.check import SequenceCheck

MOST_BRANCHES, MOST_DRAFTS = NUM_BRANCHES, NUM_DRAFTS  # of one sequence, of a branch


@dataclass(slots=True)
class Branch:
    """What a sequence is to check if the running step ends so for it."""

    num_accepted: int
    token_id: int
    draft_ids: Sequence[int]  # at most MOST_DRAFTS


@dataclass(slots=True)
class Successor:
    """One sequence's part of the step behind the running one."""

    check: SequenceCheck  # in the running step
    block_ids: Sequence[int]  # long enough for any outcome
    branches: Sequence[Branch]  # at most MOST_BRANCHES, no outcome twice

    @property
    def most_tokens(self) -> int:
        """To feed."""
        return 1 + max((len(branch.draft_ids) for branch in self.branches), default=0)
