"""Drafts a whole block in one pass: the tokens so far, then masks in place of those to be drafted. Knows no sequences.

A mask stands where a draft token will, and what comes out of it says what follows that token. So the tokens of a block
do not see one another: each has a law that follows from the prefix alone, which is what it is drawn from and travels
with. The KV of masks lies past the row's end, where nothing counts as computed, and is written over by the tokens that
come to stand there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import torch

from drafter_svc.proposers.draft_model import Runner, limits_of, load_token_choice
from drafter_svc.proposers.looped import LoopLimits, make_looped
from drafter_svc.proposers.proposer import Limits, Proposal, Proposer, Row
from drafter_svc.proposers.token_choice import TokenChoice
from slipstream.config import EngineConfig
from slipstream.engine.loading import make_runner
from slipstream.kernels.batch import Chunk
from slipstream.models.pard import read_mask_token
from slipstream.sampling.draft_law import NUM_CANDIDATES

NAME: Final = "pard"
DRAWN_AT_ONCE: Final = 8  # tokens of a row for which captured passes have room, on average
MOST_MASKS: Final = 15  # of one row: no model was trained to look further ahead


class ParallelDraft:
    """One forward pass per block; a block longer than `limits.num_lookahead` + 1 takes several."""

    adapters: Final = None  # none are made for it

    def __init__(self, runner: Runner, limits: Limits, choice: TokenChoice, mask_token: int) -> None:
        self.limits = limits
        self._runner = runner
        self._choice = choice
        self._mask_token = mask_token

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._runner.copy_blocks(pairs)

    def propose(self, rows: Sequence[Row]) -> list[tuple[Proposal, ...]]:
        counts = [self.limits.at_once(row.num_wanted) for row in rows]
        logits = self._runner.forward([self._chunk(row, count) for row, count in zip(rows, counts, strict=True)])
        blocks = torch.split(logits, counts)
        free = [i for i, row in enumerate(rows) if row.rules is None and counts[i]]
        proposals: list[tuple[Proposal, ...]] = [()] * len(rows)
        for i, drawn in zip(free, self._draw([rows[i] for i in free], [blocks[i] for i in free]), strict=True):
            proposals[i] = drawn
        for i, row in enumerate(rows):
            if row.rules is not None:
                proposals[i] = self._draw_in_turn(row, blocks[i])
        return proposals

    def _chunk(self, row: Row, count: int) -> Chunk:
        """The row, and masks after it."""
        masks = [self._mask_token] * (count - 1)
        return Chunk([*row.token_ids, *masks], row.start, row.block_ids, num_logits=count)

    def _draw(self, rows: Sequence[Row], blocks: Sequence[torch.Tensor]) -> list[tuple[Proposal, ...]]:
        """All blocks at once."""
        if not rows:
            return []
        places = [_place(row, i) for row, block in zip(rows, blocks, strict=True) for i in range(len(block))]
        drawn = iter(self._choice.choose(torch.cat(list(blocks)), places))
        return [tuple(next(drawn) for _ in block) for block in blocks]

    def _draw_in_turn(
        self,
        row: Row,
        block: torch.Tensor,  # [num_drawn, draft vocab] fp32
    ) -> tuple[Proposal, ...]:
        """One token after another: token rules look at the ones drawn before."""
        drafted, proposals = list(row.drafted), list[Proposal]()
        for i, logits in enumerate(block):
            proposals += self._choice.choose(logits[None], [replace(_place(row, i), drafted=tuple(drafted))])
            drafted.append(proposals[-1].token.token_id)
        return tuple(proposals)


def _place(row: Row, index: int) -> Row:
    """The row as the block's token `index` is drawn: its end lies that much further on."""
    return replace(row, start=row.start + index)


def load_parallel_draft(
    engine: EngineConfig, *, num_target_ids: int, num_kept: int, loop: LoopLimits | None = None
) -> Proposer:
    """The proposer of a checkpoint that was trained for it. Raises CheckpointError if it names no mask token."""
    mask_token = read_mask_token(engine.model)
    runner = make_runner(replace(engine, cuda_graphs=False))  # its graphs are of verify passes
    limits = replace(limits_of(runner), num_lookahead=MOST_MASKS)
    choice = load_token_choice(engine, runner, num_target_ids=num_target_ids, num_kept=num_kept)
    stepwise = ParallelDraft(runner, limits, choice, mask_token)
    if loop is None or num_kept > NUM_CANDIDATES:
        return stepwise
    one_pass = replace(loop, max_rows=loop.max_rows * DRAWN_AT_ONCE, max_steps=1)
    return make_looped(stepwise, runner, choice, one_pass, engine.graph_memory_bytes, mask_token)
