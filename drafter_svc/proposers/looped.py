"""Drafts several tokens of all rows at once by a loop on the device. Knows rows and results; not how the loop runs.

What the loop does not know (token rules) the proposer that it stands before does, one token at a time, and so are
prompts fed: of a row with much to feed only the end goes into the loop.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

import numpy as np

from drafter_svc.adapters import AdapterStore
from drafter_svc.enumeration import MAX_RANKS
from drafter_svc.proposers.proposer import Proposal, Proposer, Row
from drafter_svc.proposers.token_choice import TokenChoice
from slipstream.engine.draft_buffers import Ints, LoopRow
from slipstream.engine.draft_loop import DraftLoop, LoopFailed, loop_sizes
from slipstream.engine.graph_capture import GraphCapture
from slipstream.engine.model_runner import ModelRunner
from slipstream.engine.plain_step import PlainStep
from slipstream.engine.step_choice import StepKind, make_draft_step
from slipstream.exchange import DraftToken, LawKind, SparseLaw
from slipstream.kernels.draft_choice import CONFIDENCE, FIRST_OUTCOME, TOKEN, Drafting, with_draw
from slipstream.sampling.philox import DRAW_BITS, derive_key

_LOG = logging.getLogger(__name__)
MOST_FED: Final = (
    128,
    4,
    1,
)  # tokens of one row that the loop's first step takes: the most that all rows have room for
FIRST_WITH_FEATURES: Final = 2  # position of a token whose feature has a slot, see engine/eagle3_step.py
MOST_KEYS: Final = 4096  # remembered: some of each open sequence


@dataclass(frozen=True, kw_only=True, slots=True)
class LoopLimits:
    """How large loops are made."""

    max_rows: int
    max_steps: int  # tokens drawn for each row
    step: StepKind  # how a step is launched, where the model suits


class LoopedDraft:
    """One wait for the device per call, for rows that the loop takes."""

    def __init__(
        self,
        stepwise: Proposer,
        loop: DraftLoop,
        drafting: Drafting,
        mask_token: int | None = None,  # of a model that draws a block in one pass, see pard.py
    ) -> None:
        own = stepwise.limits
        by_steps = replace(own, num_lookahead=loop.most_steps - 1, feeds_drawn=True)
        self.limits = by_steps if mask_token is None else own
        self._stepwise, self._loop, self._drafting, self._mask_token = stepwise, loop, drafting, mask_token
        self._keys: dict[tuple[int, int], int] = {}
        self._copies: list[tuple[int, int]] = []  # to be made before the next rows are fed

    @property
    def adapters(self) -> AdapterStore | None:
        return self._stepwise.adapters

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._copies += pairs

    def propose(self, rows: Sequence[Row]) -> list[tuple[Proposal, ...]]:
        looped = self._looped(rows)
        before = [front for i, entries in looped.items() if (front := _before(rows[i], entries[0].start))]
        others = [i for i in range(len(rows)) if i not in looped]
        proposals: list[tuple[Proposal, ...]] = [()] * len(rows)
        if others or before or len(self._copies) > len(looped):
            self._stepwise.copy_blocks(self._take_copies())
        if others or before:
            stepwise = self._stepwise.propose([*(rows[i] for i in others), *before])
            for i, proposed in zip(others, stepwise, strict=False):
                proposals[i] = proposed
        if looped:
            drawn = self._draw_or_give_up([rows[i] for i in looped], list(looped.values()))
            for i, proposed in zip(looped, drawn, strict=True):
                proposals[i] = proposed
        return proposals

    def _looped(self, rows: Sequence[Row]) -> dict[int, list[LoopRow]]:
        """What goes into the loop, by row."""
        taken = [i for i, row in enumerate(rows) if self._takes(row)]
        for most_fed in MOST_FED:
            looped = {i: self._entries(rows[i], most_fed) for i in taken}
            if self._fits(looped):
                return looped
        return {}

    def _fits(self, looped: Mapping[int, Sequence[LoopRow]]) -> bool:
        return not looped or self._loop.holds([entry for entries in looped.values() for entry in entries])

    def _take_copies(self) -> list[tuple[int, int]]:
        copies, self._copies = self._copies, []
        return copies

    def _takes(self, row: Row) -> bool:
        plain = row.rules is None and row.adapter is None and row.features is None
        draws = row.num_wanted > 0 or self._mask_token is None  # a part of a prompt is fed, and nothing drawn
        return plain and draws and row.num_outcomes <= self._drafting.num_outcomes

    def _entries(self, row: Row, most_fed: int) -> list[LoopRow]:
        """What of the row goes into the loop: the end of it, and where masks are drawn for, each of those."""
        num_fed, settings = min(len(row.token_ids), most_fed), self._settings(row)
        num_drawn = self.limits.at_once(row.num_wanted)
        token_ids, start = row.token_ids[len(row.token_ids) - num_fed :], row.end - num_fed
        if self._mask_token is None:
            features = None if row.features is None else row.features[len(row.features) - num_fed :]
            return [LoopRow(token_ids, start, row.block_ids, num_drawn, settings, features, row.adapter)]
        masks = [
            LoopRow((self._mask_token,), position, row.block_ids, 1, settings)
            for position in range(row.end, row.end + num_drawn - 1)
        ]
        return [LoopRow(token_ids, start, row.block_ids, 1, settings), *masks]

    def _settings(self, row: Row) -> tuple[int, ...]:
        settings = row.drawing.settings
        if not row.drawing.carries_law:
            return settings
        return with_draw(settings, self._key(row.drawing.draft_key, row.draw >> DRAW_BITS), row.draw)

    def _key(self, draft_key: int, high: int) -> int:
        """Of all draws of a sequence but one in 16 million the same."""
        if (draft_key, high) not in self._keys:
            if len(self._keys) >= MOST_KEYS:
                self._keys.clear()
            self._keys[draft_key, high] = derive_key(draft_key, high)
        return self._keys[draft_key, high]

    def _draw_or_give_up(self, rows: Sequence[Row], entries: Sequence[Sequence[LoopRow]]) -> list[tuple[Proposal, ...]]:
        """What a failed loop was to draw is begun step by step."""
        try:
            return self._draw(rows, entries)
        except LoopFailed as error:
            _LOG.error("drafting goes on with the plain step: %s", error)
            return self._stepwise.propose(rows)

    def _draw(self, rows: Sequence[Row], entries: Sequence[Sequence[LoopRow]]) -> list[tuple[Proposal, ...]]:
        """Of each row what its entries have drawn, one after another."""
        words = self._loop.launch([entry for own in entries for entry in own], self._take_copies())()
        drawn, places = _Drawn(words, self._drafting), count()
        return [
            tuple(proposal for entry in own for proposal in drawn.proposals(row, next(places), entry.num_steps))
            for row, own in zip(rows, entries, strict=True)
        ]


class _Drawn:
    """What a loop has drawn, by step and entry. What many rows need is made for all at once: Python is slow."""

    def __init__(
        self,
        words: Ints,  # [num_steps, num_entries, drafting.width]
        drafting: Drafting,
    ) -> None:
        outcomes, laws = np.split(words, [FIRST_OUTCOME + drafting.num_outcomes], axis=2)
        self._outcomes = outcomes[..., FIRST_OUTCOME:].tolist()
        self._num_possible = (outcomes[..., FIRST_OUTCOME:] >= 0).sum(-1).tolist()  # likeliest first
        self._tokens = outcomes[..., TOKEN].tolist()
        self._confidences = outcomes[..., CONFIDENCE].view(np.float32).tolist()
        self._law_ids, counts = np.split(laws, 2, axis=2)
        self._counts = counts.astype(np.uint16)
        self._lengths = (counts > 0).sum(-1).tolist()  # likeliest first, so those without a count come last

    def proposals(self, row: Row, entry: int, num_steps: int) -> Iterator[Proposal]:
        with_law, most = row.drawing.carries_law, row.num_outcomes
        for step in range(num_steps):
            token_id = self._tokens[step][entry]
            token = (
                DraftToken(token_id, LawKind.SPARSE, self._law(step, entry))
                if with_law
                else DraftToken(token_id, LawKind.ONE_HOT)
            )
            possible = self._outcomes[step][entry][: min(most, self._num_possible[step][entry])]
            yield Proposal(token, tuple(possible), self._confidences[step][entry])

    def _law(self, step: int, entry: int) -> SparseLaw:
        length = self._lengths[step][entry]
        return SparseLaw(self._law_ids[step, entry, :length], self._counts[step, entry, :length])


def _before(row: Row, start: int) -> Row | None:
    """What is fed before the loop."""
    if start == row.start:
        return None
    features = None if row.features is None else row.features[: len(row.features) - (row.end - start)]
    return replace(row, token_ids=row.token_ids[: start - row.start], features=features, num_wanted=0, num_outcomes=0)


def make_looped(
    stepwise: Proposer,
    runner: ModelRunner,
    choice: TokenChoice,
    limits: LoopLimits,
    memory_bytes: int,
    mask_token: int | None = None,
) -> LoopedDraft:
    """Loops over the runner's model on its GPU, captured."""
    device = runner.model.embedding.device
    drafting = choice.drafting(MAX_RANKS + 1, device)
    sizes = loop_sizes(max_rows=limits.max_rows, max_steps=limits.max_steps)
    counts = [count for size in sizes for count in (size.num_rows, size.num_tokens)]
    plain = PlainStep(runner.model, runner.kv_cache, runner.max_model_len)
    loop = DraftLoop(
        make_draft_step(runner.model, runner.kv_cache, runner.max_model_len, limits.step, counts),
        plain,
        runner.model.logits,
        runner.kv_cache.copy_listed_blocks,
        drafting,
        sizes=sizes,
        max_blocks=-(-runner.max_model_len // runner.kv_cache.block_size),
        capture=GraphCapture(device, memory_bytes),
        adapted=None if stepwise.adapters is None else plain,
    )
    loop.prepare()
    return LoopedDraft(stepwise, loop, drafting, mask_token)
