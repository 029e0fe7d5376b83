"""Which rows one draft step feeds, within rows, tokens and KV blocks. Knows sequences and blocks; knows no model.

Trunks come first, then branches by the probability that they come true, new ones last. When KV blocks run out branches
give way, and then the sequence that asked for more: it is drafted for again once all of its KV fits.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from drafter_svc.config import RowLimits
from drafter_svc.draft_sequence import DraftSequence
from drafter_svc.enumeration import MAX_RANKS, Outcome
from drafter_svc.path import Path
from drafter_svc.proposers.proposer import Limits, Row
from slipstream.cache.block_pool import BlockPool, OutOfBlocks

_CATCH_UP_TOKENS: Final = 32  # a row with more to feed is a prompt and shares the prefill budget


@dataclass(frozen=True, slots=True)
class PlannedRow:
    sequence: DraftSequence
    path: Path
    row: Row


@dataclass(slots=True)
class Plan:
    rows: list[PlannedRow] = field(default_factory=list)
    copies: list[tuple[int, int]] = field(default_factory=list)  # KV blocks (source, target), before the rows
    num_tokens: int = 0


@dataclass(frozen=True, slots=True)
class _Feed:
    """What one row is to do."""

    start: int
    num_tokens: int
    num_wanted: int
    end: int  # of the KV that it writes; what lies past its tokens never counts as computed


class Planner:
    def __init__(self, pool: BlockPool, limits: RowLimits, own: Limits) -> None:
        self._pool = pool
        self._limits = limits
        self._own = own  # the proposer's
        self._feeds_prompts = False  # a step of prompts alone, beside others
        self._prompts_next = False

    def plan(self, sequences: Collection[DraftSequence]) -> Plan:
        plan = Plan()
        self._revive(sequences)
        self._add_trunks(plan, sequences)
        self._add_branches(plan, sequences)
        if not any(sequence.starved for sequence in sequences):
            self._begin_branches(plan, sequences)
        return plan

    def _revive(self, sequences: Collection[DraftSequence]) -> None:
        free = self._pool.num_free
        for sequence in sequences:
            if sequence.starved and (needed := self._blocks_for(sequence)) <= free:
                sequence.starved = False
                free -= needed

    def _add_trunks(self, plan: Plan, sequences: Collection[DraftSequence]) -> None:
        waiting = self._whose_turn([sequence for sequence in sequences if sequence.trunk_has_work()], len(sequences))
        prefill_tokens = self._limits.max_prefill_tokens if self._others_draft(sequences) else self._limits.max_tokens
        for sequence in waiting:
            is_prefill = self._is_prefill(sequence)
            left = min(self._left(plan), prefill_tokens) if is_prefill else self._left(plan)
            before = plan.num_tokens
            if left > 0:
                self._add_trunk(plan, sequence, left, sequences)
            if is_prefill:
                prefill_tokens -= plan.num_tokens - before

    def _whose_turn(self, waiting: list[DraftSequence], num_open: int) -> list[DraftSequence]:
        """Who drafts, then prompts; in turns where all tokens are drawn at once, for whoever drafts waits for all."""
        prompts: list[DraftSequence] = []
        drafting: list[DraftSequence] = []
        for sequence in waiting:
            (prompts if self._is_prefill(sequence) else drafting).append(sequence)
        if not (self._own.feeds_drawn and prompts):
            self._prompts_next = self._feeds_prompts = False
            return [*drafting, *prompts]
        self._prompts_next = bool(drafting) and not self._prompts_next
        self._feeds_prompts = not self._prompts_next and num_open > len(prompts)
        return drafting if self._prompts_next else prompts

    def _add_trunk(self, plan: Plan, sequence: DraftSequence, most: int, sequences: Collection[DraftSequence]) -> None:
        feed = self._feed(sequence, sequence.trunk, min(most, self._num_to_feed(sequence)))
        while not _grow(sequence.trunk, feed.end):
            if not _evict_branch(sequences):
                sequence.starve()
                return
        self._add(plan, sequence, sequence.trunk, feed)

    def _num_to_feed(self, sequence: DraftSequence) -> int:
        """A prompt in its turn is fed without the last token: nothing is drawn for it while others may wait."""
        num_tokens = sequence.num_to_feed(sequence.trunk)
        draws_nothing = sequence.holds_back or (self._feeds_prompts and self._is_prefill(sequence))
        return num_tokens - 1 if draws_nothing else num_tokens

    def _add_branches(self, plan: Plan, sequences: Collection[DraftSequence]) -> None:
        unfinished = [(branch, s) for s in sequences for branch in s.unfinished_branches()]
        for branch, sequence in sorted(unfinished, key=lambda pair: -pair[0].probability):
            feed = self._feed(sequence, branch, sequence.num_to_feed(branch))
            if feed.end - feed.start > self._left(plan):
                return
            if _grow(branch, feed.end):
                self._add(plan, sequence, branch, feed)
            else:
                sequence.drop_branch(branch)

    def _begin_branches(self, plan: Plan, sequences: Collection[DraftSequence]) -> None:
        ready = [(outcome, s) for s in sequences for outcome in s.ready_outcomes()]
        for outcome, sequence in sorted(ready, key=lambda pair: -pair[0].probability):
            if self._left(plan) == 0:
                return
            if not self._begin_branch(plan, sequence, outcome):
                return

    def _begin_branch(self, plan: Plan, sequence: DraftSequence, outcome: Outcome) -> bool:
        """False if KV blocks ran out."""
        if len(sequence.branches) >= sequence.fan_out:
            return True
        try:
            begun = sequence.begin_branch(outcome)
        except OutOfBlocks:
            return False
        if begun is None:
            return True
        branch, copies = begun
        feed = self._feed(sequence, branch, sequence.num_to_feed(branch))
        if not _grow(branch, feed.end):
            sequence.drop_branch(branch)
            return False
        plan.copies += copies
        self._add(plan, sequence, branch, feed)
        return True

    def _add(self, plan: Plan, sequence: DraftSequence, path: Path, feed: _Feed) -> None:
        row = Row(
            token_ids=sequence.feeding.token_ids(path)[: feed.num_tokens],
            start=feed.start,
            block_ids=tuple(path.table.block_ids),
            drawing=sequence.drawing,
            draw=path.draw,
            num_wanted=feed.num_wanted,
            num_outcomes=min(sequence.fan_out, MAX_RANKS) + 1 if feed.num_wanted else 0,
            rules=sequence.rules,
            drafted=[token.token_id for token in path.tokens] if sequence.rules else (),
            features=sequence.feeding.features(path, feed.num_tokens),
            adapter=sequence.adapter,
        )
        plan.rows.append(PlannedRow(sequence, path, row))
        plan.num_tokens += feed.end - feed.start

    def _feed(self, sequence: DraftSequence, path: Path, num_tokens: int) -> _Feed:
        start = sequence.feeding.start(path)
        num_wanted = self._num_wanted(sequence, path, start + num_tokens)
        num_past = max(0, self._own.at_once(num_wanted) - 1)
        return _Feed(start, num_tokens, num_wanted, start + num_tokens + num_past)

    def _num_wanted(self, sequence: DraftSequence, path: Path, end: int) -> int:
        """Draft tokens to ask of a row that feeds up to `end`; none before all that stands before them is fed.

        One more than the path's goal tells what may become final after all of it, for which branches are begun.
        """
        if end < len(sequence.committed) + len(path.tokens):
            return 0
        num_past_goal = 1 if self._own.feeds_drawn and sequence.fan_out else 0
        return max(1, path.goal - len(path.tokens) + num_past_goal)

    def _left(self, plan: Plan) -> int:
        """Tokens that may still be fed; none once the rows are full."""
        has_room = len(plan.rows) < self._limits.max_rows
        return max(0, self._limits.max_tokens - plan.num_tokens) if has_room else 0

    def _is_prefill(self, sequence: DraftSequence) -> bool:
        return sequence.num_to_feed(sequence.trunk) > _CATCH_UP_TOKENS

    def _others_draft(self, sequences: Collection[DraftSequence]) -> bool:
        """Whether a step would make someone wait who is past the prompt."""
        busy = (s for s in sequences if s.trunk_has_work() or s.unfinished_branches())
        return any(s.unfinished_branches() or not self._is_prefill(s) for s in busy)

    def _blocks_for(self, sequence: DraftSequence) -> int:
        tokens = len(sequence.committed) + sequence.num_draft_tokens
        return min(self._pool.num_blocks, -(-tokens // self._pool.block_size))


def _grow(path: Path, num_tokens: int) -> bool:
    try:
        path.table.grow(num_tokens)
    except OutOfBlocks:
        return False
    return True


def _evict_branch(sequences: Collection[DraftSequence]) -> bool:
    """Takes the KV of the branch that is least likely to come true; False if no branch has any."""
    holding = [(branch, s) for s in sequences for branch in s.branches if branch.table.block_ids]
    if not holding:
        return False
    branch, sequence = min(holding, key=lambda pair: pair[0].probability)
    sequence.drop_branch(branch)
    return True
