"""The drafter: opens sequences, takes commits, drafts ahead of need, one step at a time. Knows no gRPC and no tensors.

`step` is one draft step of all rows; between two steps the engine thread hands over what has arrived, so a commit ends
the rows it has killed within one step.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

from drafter_svc.adapters import Adapters
from drafter_svc.config import RowLimits
from drafter_svc.draft_sequence import DraftSequence
from drafter_svc.events import (
    AdapterOrdered,
    Closed,
    Committed,
    Event,
    FeaturesArrived,
    Opened,
    Output,
    StreamEnded,
    StreamId,
    Updated,
)
from drafter_svc.metrics import DrafterMetrics
from drafter_svc.planning import Plan, Planner
from drafter_svc.proposers.proposer import Proposer
from slipstream.cache.block_pool import BlockPool
from slipstream.errors import Exhausted, InvalidRequest, UnknownModel, VocabularyMismatch
from slipstream.exchange import Draft, DraftBatch, Features, ModelInfo, SequenceFailure
from slipstream.request import SequenceRequest
from slipstream.timeline import NO_TIMELINE, Timeline


class Drafter:
    """A Worker of EngineThread. A sequence is known by its stream and the id it has there."""

    def __init__(
        self,
        proposer: Proposer,
        limits: RowLimits,
        model: ModelInfo,  # what is served; its `proposers` names the one here
        max_num_seqs: int,
        clock: Callable[[], float] = time.monotonic,
        stop_below: float = 0.0,  # confidence at which a path ends early
        timeline: Timeline = NO_TIMELINE,
    ) -> None:
        own = proposer.limits
        self.metrics = DrafterMetrics()
        self.adapters = Adapters(proposer.adapters)
        self._proposer = proposer
        self._pool = BlockPool(own.num_blocks, own.block_size)
        # A sequence that fits alone can always be drafted for once the others make room.
        self._limits = replace(own, max_model_len=min(own.max_model_len, own.num_blocks * own.block_size))
        self._planner = Planner(self._pool, limits, self._limits)
        self._max_branches = limits.max_branches
        self._most_ahead, self._most_drafted = limits.most_ahead, limits.most_drafted
        self._model = model
        self._max_num_seqs = max_num_seqs
        self._clock = clock
        self._stop_below = stop_below
        self._timeline = timeline
        self._sequences: dict[tuple[StreamId, int], DraftSequence] = {}
        self._replies: Output = []  # to be said before any draft: failures, and answers to orders
        self._idle = True  # nothing to do until an event comes

    def info(self) -> ModelInfo:
        """Of use from any thread: it reads two counts."""
        return replace(
            self._model,
            kv_blocks_total=self._pool.num_blocks,
            kv_block_size=self._pool.block_size,
            kv_blocks_used=self._pool.num_used,
            num_sequences=len(self._sequences),
        )

    def handle(self, event: Event) -> None:
        self._idle = False
        match event:
            case Opened():
                self._open(event)
            case Updated(stream, update):
                if sequence := self._sequences.get((stream, update.sequence_id)):
                    sequence.update(replace(update, fan_out=min(update.fan_out, self._max_branches)))
            case Committed():
                self._commit(event)
            case FeaturesArrived(stream, features):
                for one in features:
                    self._add_features(stream, one)
            case Closed(stream, sequence_id):
                self._close(stream, sequence_id)
            case StreamEnded(ended):
                for stream, sequence_id in list(self._sequences):
                    if stream == ended:
                        self._close(stream, sequence_id)
            case AdapterOrdered(stream, order):
                self._replies.append((stream, self.adapters.answer(order)))

    def next_wake(self) -> float | None:
        return None if self._idle else self._clock()

    def step(self) -> Output | None:
        started = self._clock()
        plan = self._planner.plan(self._sequences.values())
        if plan.rows:
            with self._timeline.span("draft", f"{len(plan.rows)} rows"):
                self._draft(plan)
            elapsed = self._clock() - started
            self.metrics.record_step(elapsed, num_rows=len(plan.rows), num_tokens=plan.num_tokens)
            for sequence in {planned.sequence for planned in plan.rows}:
                sequence.compute_seconds += elapsed
        self._idle = not plan.rows
        return self._take_output() or None

    def _open(self, event: Opened) -> None:
        request = replace(event.request, fan_out=min(event.request.fan_out, self._max_branches))
        try:
            self._check(event.stream, request)
            adapter = self.adapters.acquire(request.adapter)
        except (InvalidRequest, Exhausted, VocabularyMismatch, UnknownModel) as error:
            self._replies.append((event.stream, SequenceFailure(request.sequence_id, error)))
            return
        self._close(event.stream, request.sequence_id)
        sequence = DraftSequence(request, self._pool, self._limits, event.received, self._stop_below, adapter)
        self._sequences[event.stream, request.sequence_id] = sequence
        self._limit_to_load()

    def _limit_to_load(self) -> None:
        """Where verifier and drafter share a GPU, drafting for many takes more from them than it gives."""
        num_open = len(self._sequences)
        for sequence in self._sequences.values():
            sequence.runs_ahead, sequence.rests = num_open <= self._most_ahead, num_open > self._most_drafted

    def _check(self, stream: StreamId, request: SequenceRequest) -> None:
        offered = self._model.proposers
        if len(request.proposers) != 1 or request.proposers[0] not in offered:
            raise InvalidRequest(f"proposers is {list(request.proposers)}; give exactly one of {list(offered)}")
        if request.vocabulary_hash != self._model.vocabulary_hash:
            raise VocabularyMismatch(
                f"the target's vocabulary is {request.vocabulary_hash or 'not given'}, that of draft model "
                f"{self._model.name!r} is {self._model.vocabulary_hash}; use a draft model of the target's vocabulary"
            )
        if self._model.features not in ("", request.features):
            raise InvalidRequest(
                f"features is {request.features or 'empty'}, and draft model {self._model.name!r} is made for "
                f"{self._model.features}; start the verifier with `--features` and this very head"
            )
        if min(request.token_ids) < 0:
            raise InvalidRequest(f"token id {min(request.token_ids)} in the prompt; ids must be >= 0")
        known = self._sequences.get((stream, request.sequence_id))
        if known is not None and request.epoch <= known.request.epoch:
            raise InvalidRequest(
                f"epoch of sequence {request.sequence_id} is {request.epoch}; to open it again it must be above "
                f"{known.request.epoch}, for draws are numbered by it"
            )
        if known is None and len(self._sequences) >= self._max_num_seqs:
            raise Exhausted(f"{len(self._sequences)} sequences are open here, the most there may be; try again later")

    def _commit(self, event: Committed) -> None:
        for commit in event.batch.commits:
            sequence = self._sequences.get((event.stream, commit.sequence_id))
            if sequence is None:
                continue
            if commit.base >= len(sequence.committed):  # else it was sent before
                self.metrics.passes.add(sequence.request.tenant, commit)
            if commit.finish_reason:
                self._close(event.stream, commit.sequence_id)
            else:
                sequence.commit(commit, event.received)

    def _add_features(self, stream: StreamId, features: Features) -> None:
        if sequence := self._sequences.get((stream, features.sequence_id)):
            try:
                sequence.features.add(features)
            except InvalidRequest as error:  # another head's: it would never be drafted for
                self._replies.append((stream, SequenceFailure(features.sequence_id, error)))
                self._close(stream, features.sequence_id)

    def _close(self, stream: StreamId, sequence_id: int) -> None:
        if sequence := self._sequences.pop((stream, sequence_id), None):
            sequence.release()
            self.adapters.release(sequence.adapter)
            self._limit_to_load()

    def _draft(self, plan: Plan) -> None:
        if plan.copies:
            self._proposer.copy_blocks(plan.copies)
        proposals = self._proposer.propose([planned.row for planned in plan.rows])
        for planned, proposed in zip(plan.rows, proposals, strict=True):
            planned.sequence.take(planned.path, proposed, planned.row.end)

    def _take_output(self) -> Output:
        """Replies, then one batch per stream with every path that became complete."""
        output, self._replies = self._replies, []
        drafts: defaultdict[StreamId, list[Draft]] = defaultdict(list)
        sources: defaultdict[StreamId, list[DraftSequence]] = defaultdict(list)
        for (stream, _), sequence in self._sequences.items():
            if new := list(sequence.drafts()):
                drafts[stream] += new
                sources[stream].append(sequence)
        batches = {stream: self._batch(drafts[stream], sources[stream]) for stream in drafts}
        self.metrics.record_batches(batches.values())
        return [*output, *batches.items()]

    def _batch(self, drafts: list[Draft], sources: list[DraftSequence]) -> DraftBatch:
        held = self._clock() - max(sequence.received for sequence in sources)
        computed = max(sequence.compute_seconds for sequence in sources)
        for sequence in sources:
            sequence.compute_seconds = 0.0
        return DraftBatch(tuple(drafts), draft_us=_microseconds(computed), held_us=_microseconds(held))


def _microseconds(seconds: float) -> int:
    return max(0, round(seconds * 1e6))
