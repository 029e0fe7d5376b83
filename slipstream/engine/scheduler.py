"""Decides which sequences compute how much in a step. Knows token counts and KV blocks; knows no tokens, no drafts."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from slipstream.cache.block_pool import OutOfBlocks
from slipstream.engine.prompt_pace import FixedPace, PromptPace
from slipstream.engine.sequence import EngineSequence
from slipstream.errors import Exhausted


@dataclass(slots=True)
class Share:
    """One sequence's part of a step. If `completes`, the pass may check drafts and adds at least one token."""

    sequence: EngineSequence
    num_tokens: int  # committed tokens to feed, from sequence.num_computed on
    num_draft_tokens: int  # most draft tokens to feed after them
    completes: bool  # all committed tokens will be computed


class Scheduler:
    """Continuous batching under a token budget: sequences that decode first, then prompts in chunks, then new ones.

    Budget and blocks are reserved for K drafts whether or not they exist, so that no sequence's share depends on what
    anyone drafted. While prompts are to be computed, drafts leave them half of what decoding does not need. When blocks
    run out, drafts go first; then the newest sequence gives its KV back, waits at the head of the queue and is computed
    again. The oldest always gets on.
    """

    def __init__(
        self, *, max_num_seqs: int, max_num_batched_tokens: int, max_waiting: int, pace: PromptPace | None = None
    ) -> None:
        """`pace`: of prompts while others decode; without one they take what the budget leaves."""
        if max_num_batched_tokens < max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens is {max_num_batched_tokens}; it must be >= max_num_seqs, {max_num_seqs}: "
                "each running sequence needs one token per step"
            )
        self._max_num_seqs = max_num_seqs
        self._max_tokens = max_num_batched_tokens
        self._max_waiting = max_waiting
        self.pace = pace or FixedPace(max_num_batched_tokens)
        self._running: list[EngineSequence] = []  # oldest first
        self._waiting: deque[EngineSequence] = deque()
        self._shares: dict[EngineSequence, Share] = {}
        self._budget = 0

    @property
    def running(self) -> Collection[EngineSequence]:
        return self._running

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def may_admit(self) -> bool:
        """Whether the next step may be of more sequences than now run."""
        return bool(self._waiting) and len(self._running) < self._max_num_seqs

    def add(self, sequence: EngineSequence) -> None:
        """Queues a new sequence; Exhausted if the queue is full."""
        if len(self._running) + len(self._waiting) >= self._max_num_seqs + self._max_waiting:
            raise Exhausted(
                f"{len(self._running)} sequences run and {len(self._waiting)} wait, the most allowed; try again later"
            )
        self._waiting.append(sequence)

    def remove(self, sequence: EngineSequence) -> None:
        """Forgets a sequence and gives its KV back."""
        sequence.release()
        if sequence in self._running:
            self._running.remove(sequence)
        else:
            self._waiting.remove(sequence)

    def schedule(self) -> list[Share]:
        """The next step's shares; their blocks are allocated."""
        self._shares, self._budget = {}, self._max_tokens
        num_running = len(self._running)
        decoding = [sequence for sequence in self._running if not _is_prompt(sequence)]
        prompts = (
            [sequence for sequence in self._running if _is_prompt(sequence)] if len(decoding) < num_running else []
        )
        allowance = self._draft_allowance(len(decoding), len(prompts))
        self._give_tokens(decoding)
        self._give_drafts(decoding, allowance)
        if decoding:
            self._budget = min(self._budget, self.pace.room(self._max_tokens - self._budget))
        self._give_tokens(prompts)
        if len(self._running) == num_running:  # who was just preempted must not push out others
            self._admit()
        served = set(decoding)
        self._give_drafts([sequence for sequence in self._shares if sequence not in served], allowance)
        return list(self._shares.values())

    @property
    def draft_allowance(self) -> int:
        """Most draft tokens of each sequence in a step in which all decode."""
        return self._draft_allowance(len(self._running), 0)

    def _draft_allowance(self, num_decoding: int, num_prompts: int) -> int:
        """An equal part for each decoding sequence of the budget that one token each leaves over."""
        spare = self._max_tokens - num_decoding
        if num_prompts or self._waiting:
            spare //= 2
        return spare // max(1, num_decoding)

    def _give_tokens(self, sequences: Sequence[EngineSequence]) -> None:
        """Committed tokens to feed, as many as the budget allows; preempts when blocks run out."""
        for sequence in sequences:
            uncomputed = sequence.num_uncomputed
            count = min(uncomputed, self._budget)
            # An older sequence may have preempted this one in this very loop.
            if count and sequence.holds_kv and self._make_room(sequence, sequence.num_computed + count):
                self._budget -= count
                self._shares[sequence] = Share(sequence, count, 0, count == uncomputed)

    def _give_drafts(self, sequences: Sequence[EngineSequence], allowance: int) -> None:
        """Room for drafts where a share completes; preempts nobody."""
        for sequence in sequences:
            share = self._shares.get(sequence)
            if share is None or not share.completes:
                continue
            count = min(sequence.most_draft_tokens, allowance, self._budget)
            if self._fits(sequence, sequence.num_tokens + count):
                self._budget -= count
                share.num_draft_tokens = count

    def _admit(self) -> None:
        """New sequences in turn, but none that would compute what a running one is about to.

        It waits until it can share those blocks: parallel samples compute their prompt once.
        """
        if not self._waiting or not self._has_place():
            return
        ahead = {name for sequence in self._running for name in sequence.blocks_ahead}
        for sequence in self._in_turn():
            if not self._has_place():
                return
            if sequence.first_missing_block in ahead:
                continue
            try:
                sequence.start()
            except OutOfBlocks:
                return
            self._waiting.remove(sequence)
            self._running.append(sequence)
            self._give_tokens([sequence])
            ahead.update(sequence.blocks_ahead)

    def _in_turn(self) -> list[EngineSequence]:
        """First who was preempted; then tenants one after the other, those first that run least; of each the oldest."""
        num_before = Counter(sequence.tenant for sequence in self._running)
        turns = {}
        for sequence in self._waiting:
            turns[sequence] = -1 if sequence.has_started else num_before[sequence.tenant]
            num_before[sequence.tenant] += 1
        return sorted(self._waiting, key=turns.__getitem__)

    def _has_place(self) -> bool:
        return len(self._running) < self._max_num_seqs and self._budget > 0

    def _fits(self, sequence: EngineSequence, num_tokens: int) -> bool:
        if num_tokens <= sequence.table.capacity:
            return True
        try:
            sequence.table.grow(num_tokens)
        except OutOfBlocks:
            return False
        return True

    def _make_room(self, sequence: EngineSequence, num_tokens: int) -> bool:
        """Grows, preempting the newest sequences; False if that came to `sequence` itself."""
        while not self._fits(sequence, num_tokens):
            newest = self._running[-1]
            self._preempt(newest)
            if newest is sequence:
                return False
        return True

    def _preempt(self, sequence: EngineSequence) -> None:
        self._running.remove(sequence)
        self._waiting.appendleft(sequence)
        sequence.release()
        share = self._shares.pop(sequence, None)
        if share is not None:
            self._budget += share.num_tokens


def _is_prompt(sequence: EngineSequence) -> bool:
    """More to compute than the one token that the last pass added: a prompt, or what was preempted."""
    return sequence.num_uncomputed > 1
