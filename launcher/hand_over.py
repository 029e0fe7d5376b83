"""Hands commits and drafts over in memory between a verifier and a drafter of one process. Knows their messages alone.

Which sequences, the gateway says: it opens them at both under one number. It still gets every commit; of drafts it gets
only the times, and those once a step runs, since the event loop would take the interpreter from a verifier that is
about to launch one. Whatever the gateway sends reaches both services through here, so that each event stands in its
engine's queue before anything that follows from it.

A verifier that waits for drafts on one device with the drafter has its own thread drive that meanwhile: neither has to
wake the other, nor to take turns with the interpreter.
"""

from __future__ import annotations

import secrets
import threading
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import drafter_svc.beside
import verifier_svc.beside
from drafter_svc import events as drafting
from slipstream.exchange import Commit, CommitBatch, Draft, DraftBatch, SequenceFailure
from slipstream.request import FinishReason, SequenceRequest
from verifier_svc import messages as verifying
from verifier_svc.metrics import VerifierMetrics
from verifier_svc.round_trips import RoundTrips

MOST_REMEMBERED: Final = 256  # commits of a sequence, for a drafter that is opened with less than is final by now

PairKey = tuple[int, int]  # the number that a gateway gave it, the sequence's id
Key = tuple[int, int]  # a service's stream, the sequence's id
_EPOCH: Final = 32  # bits of a draw below it


@dataclass(slots=True)
class _Pair:
    """One sequence; where nobody has it open, nothing goes."""

    verifier: int | None = None  # its stream there
    drafter: int | None = None
    epoch: int = 0  # of the drafter's opening: drafts of an earlier one are dropped
    commits: deque[Commit] = field(default_factory=lambda: deque(maxlen=MOST_REMEMBERED))


class HandOver:
    def __init__(self, *, by_one_thread: bool) -> None:
        self.process = secrets.token_hex(8)
        self._lock = threading.Lock()  # the event loop and both engines' threads meet here
        self._pairs: dict[PairKey, _Pair] = {}
        self._at_verifier: dict[Key, PairKey] = {}
        self._at_drafter: dict[Key, PairKey] = {}
        self._post_verifier: verifier_svc.beside.Post = _not_yet
        self._drafter: drafter_svc.beside.Engine | None = None
        self._num_posted = 0  # to it
        self._by_one_thread = by_one_thread
        self._to_go_on: set[int] = set()  # streams of the drafter, whose own thread has not looked since
        self._reports: drafting.Output = []  # for gateways, of drafts that were handed over
        self._trips: defaultdict[int, RoundTrips]  # by the verifier's stream

    @property
    def num_pairs(self) -> int:
        return len(self._pairs)

    @property
    def for_verifier(self) -> verifier_svc.beside.Beside:
        return verifier_svc.beside.Beside(
            process=self.process,
            hear=self._hear_verifier,
            take_commits=self.take_commits,
            note_outputs=self.note_outputs,
        )

    @property
    def for_drafter(self) -> drafter_svc.beside.Beside:
        return drafter_svc.beside.Beside(process=self.process, hear=self._hear_drafter, take_drafts=self.take_drafts)

    def take_commits(self, commits: Sequence[tuple[int, Commit]], *, waits: bool) -> None:
        """Of one step."""
        here: list[drafting.Committed] = []
        told: defaultdict[int, list[Commit]] = defaultdict(list)
        with self._lock:
            for stream, commit in commits:
                pair = self._pair_at(self._at_verifier, (stream, commit.sequence_id))
                if pair is None:
                    continue
                bare = commit if commit.logprobs is None else replace(commit, logprobs=None)
                pair.commits.append(bare)
                if pair.drafter is not None:
                    told[pair.drafter].append(bare)
                    self._trips[stream].note_commits((bare,))
            for stream, batch in told.items():
                event = drafting.Committed(stream, CommitBatch(tuple(batch)))
                if waits and len(told) == 1 and self._claims_drafter():
                    here.append(event)
                    self._to_go_on.add(stream)
                else:
                    self._post(event)
        for event in here:
            assert self._drafter is not None
            self._drafter.work_here(event)

    def take_drafts(self, output: drafting.Output) -> drafting.Output:
        """What is left is for the network."""
        left: drafting.Output = []
        with self._lock:
            for stream, message in output:
                if isinstance(message, DraftBatch):
                    left += self._divert(stream, message)
                    continue
                if isinstance(message, SequenceFailure):
                    self._leave_drafter((stream, message.sequence_id))
                left.append((stream, message))
        return left

    def note_outputs(self, outputs: list[verifying.StreamOutput]) -> list[verifying.StreamOutput]:
        """A step runs, or none will."""
        with self._lock:
            reports, self._reports = self._reports, []
            for stream in self._to_go_on:
                self._post(drafting.Committed(stream, CommitBatch(())))
            self._to_go_on.clear()
            for output in outputs:
                ended = [
                    one.sequence_id for one in output.commits.commits if one.finish_reason is not FinishReason.NONE
                ]
                for sequence_id in (*ended, *(failure.sequence_id for failure in output.failures)):
                    self._leave_verifier((output.stream, sequence_id))
        if reports and self._drafter is not None:
            self._drafter.send_undiverted(reports)
        return outputs

    # What gateways say

    def _hear_verifier(self, post: verifier_svc.beside.Post, metrics: VerifierMetrics) -> verifier_svc.beside.Post:
        self._post_verifier = post
        self._trips = defaultdict(lambda: RoundTrips(metrics.round_trip_seconds))

        def note_and_post(event: verifying.Event) -> None:
            with self._lock:
                self._note_for_verifier(*event)
                post(event)

        return note_and_post

    def _hear_drafter(self, engine: drafter_svc.beside.Engine) -> drafter_svc.beside.Post:
        self._drafter = engine

        def note_and_post(event: drafting.Event) -> None:
            with self._lock:
                late = tuple(self._note_for_drafter(event))
                self._post(event)
                if isinstance(event, drafting.Opened) and late:
                    self._post(drafting.Committed(event.stream, CommitBatch(late)))

        return note_and_post

    def _note_for_verifier(self, stream: int, message: verifying.Message) -> None:
        match message:
            case SequenceRequest(sequence_id=sequence_id, hand_over=number) if number:
                self._leave_verifier((stream, sequence_id))
                self._at_verifier[stream, sequence_id] = number, sequence_id
                self._pairs.setdefault((number, sequence_id), _Pair()).verifier = stream
            case verifying.Close(sequence_id):
                self._leave_verifier((stream, sequence_id))
            case verifying.StreamEnded():
                self._trips.pop(stream, None)
                for key in [key for key in self._at_verifier if key[0] == stream]:
                    self._leave_verifier(key)

    def _note_for_drafter(self, event: drafting.Event) -> Iterator[Commit]:
        """Commits that an opening does not know of."""
        match event:
            case drafting.Opened(stream, request) if request.hand_over:
                self._leave_drafter((stream, request.sequence_id))
                pair_key = request.hand_over, request.sequence_id
                self._at_drafter[stream, request.sequence_id] = pair_key
                pair = self._pairs.setdefault(pair_key, _Pair())
                pair.drafter, pair.epoch = stream, request.epoch
                num_known = len(request.token_ids)
                yield from (commit for commit in pair.commits if commit.base + len(commit.token_ids) > num_known)
            case drafting.Closed(stream, sequence_id):
                self._leave_drafter((stream, sequence_id))
            case drafting.StreamEnded(stream):
                for key in [key for key in self._at_drafter if key[0] == stream]:
                    self._leave_drafter(key)

    # How it is done

    def _post(self, event: drafting.Event) -> None:
        assert self._drafter is not None
        self._num_posted += 1
        self._drafter.post(event)

    def _claims_drafter(self) -> bool:
        """Whether this thread may, and then must, do the drafter's work on one event."""
        claims = self._by_one_thread and self._drafter is not None and self._drafter.claim(self._num_posted)
        self._num_posted += claims
        return claims

    def _divert(self, stream: int, message: DraftBatch) -> drafting.Output:
        """What of it goes over the network now."""
        handed: defaultdict[int, list[Draft]] = defaultdict(list)
        left: list[Draft] = []
        reports: list[Draft] = []  # one tells the gateway of all of its sequence
        for draft in message.drafts:
            pair = self._pair_at(self._at_drafter, (stream, draft.sequence_id))
            if pair is None:
                left.append(draft)
                continue
            if pair.verifier is not None and draft.draw >> _EPOCH == pair.epoch:
                handed[pair.verifier].append(draft)
            if not (reports and reports[-1].sequence_id == draft.sequence_id):
                reports.append(replace(draft, tokens=()))
        for verifier, drafts in handed.items():
            self._trips[verifier].note_drafts(drafts)
            self._post_verifier((verifier, DraftBatch(tuple(drafts))))
        if reports:
            self._reports.append((stream, replace(message, drafts=tuple(reports))))
        return [(stream, replace(message, drafts=tuple(left)))] if left else []

    def _pair_at(self, side: dict[Key, PairKey], key: Key) -> _Pair | None:
        pair_key = side.get(key)
        return None if pair_key is None else self._pairs[pair_key]

    def _leave_verifier(self, key: Key) -> None:
        if pair_key := self._at_verifier.pop(key, None):
            self._pairs[pair_key].verifier = None
            self._pairs[pair_key].commits.clear()
            self._forget_if_left(pair_key)

    def _leave_drafter(self, key: Key) -> None:
        if pair_key := self._at_drafter.pop(key, None):
            self._pairs[pair_key].drafter = None
            self._forget_if_left(pair_key)

    def _forget_if_left(self, pair_key: PairKey) -> None:
        pair = self._pairs[pair_key]
        if pair.verifier is None and pair.drafter is None:
            del self._pairs[pair_key]


def _not_yet(event: object) -> None:
    """Before both services are put together nobody has opened anything."""
    raise AssertionError(f"{event} before both engines are there")
