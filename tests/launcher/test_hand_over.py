"""What a verifier and a drafter of one process hand over in memory, and what still goes over the network."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from drafter_svc import events as drafting
from launcher.hand_over import HandOver
from slipstream.exchange import Commit, CommitBatch, Draft, DraftBatch, DraftToken, LawKind, SequenceFailure
from slipstream.request import FinishReason, SamplingParams, SequenceRequest
from verifier_svc import messages as verifying
from verifier_svc.metrics import VerifierMetrics

V, D, ID, NUMBER = 1, 2, 7, 99  # streams of the two services, a sequence's id, what pairs it
REQUEST = SequenceRequest(
    sequence_id=ID, token_ids=(5, 6), num_prompt_tokens=2, sampling=SamplingParams(), hand_over=NUMBER, epoch=3
)
DRAFT = Draft(ID, 2, "draft_model", 3 << 32, (DraftToken(8, LawKind.ONE_HOT),))
TOLD = replace(DRAFT, tokens=())


class Engine:
    """A queue instead of a drafter."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.here: list[Any] = []  # worked on by the verifier's thread
        self.sent: list[Any] = []
        self.num_handled = 0
        self.post = self.events.append
        self.send_undiverted = self.sent.extend
        self.work_here = self.here.append

    def claim(self, num_posted: int) -> bool:
        return num_posted == self.num_handled


class Both:
    def __init__(self, *, by_one_thread: bool = False) -> None:
        self.door = HandOver(by_one_thread=by_one_thread)
        self.verifier: list[Any] = []
        self.engine = Engine()
        self.drafter = self.engine.events
        self.reports = self.engine.sent
        self.metrics = VerifierMetrics()
        self.say_to_verifier = self.door.for_verifier.hear(self.verifier.append, self.metrics)
        self.say_to_drafter = self.door.for_drafter.hear(cast(Any, self.engine))

    def open(self, *, verifier: SequenceRequest = REQUEST, drafter: SequenceRequest = REQUEST) -> None:
        self.say_to_verifier((V, verifier))
        self.say_to_drafter(drafting.Opened(D, drafter))
        self.verifier.clear()
        self.drafter.clear()

    def commit(
        self, base: int, token_id: int, finish_reason: FinishReason = FinishReason.NONE, *, waits: bool = False
    ) -> Commit:
        commit = Commit(ID, base, (token_id,), finish_reason=finish_reason)
        self.door.take_commits([(V, commit)], waits=waits)
        self.door.note_outputs([verifying.StreamOutput(V, CommitBatch((commit,)), ())])
        return commit

    def draft(self, draft: Draft = DRAFT) -> tuple[Draft, ...]:
        """What goes over the network at once."""
        left = self.door.take_drafts([(D, DraftBatch((draft,), draft_us=10))])
        return tuple(draft for _, message in left if isinstance(message, DraftBatch) for draft in message.drafts)

    @property
    def told(self) -> list[tuple[Commit, ...]]:
        return [event.batch.commits for event in self.drafter if isinstance(event, drafting.Committed)]


@pytest.fixture
def both() -> Both:
    return Both()


def test_commits_reach_the_drafter_and_drafts_the_verifier(both: Both) -> None:
    both.open()
    commit = both.commit(2, 8)
    assert both.told == [(commit,)]
    assert not both.draft(replace(DRAFT, base=3))
    assert [(stream, batch.drafts) for stream, batch in both.verifier] == [(V, (replace(DRAFT, base=3),))]
    assert not both.reports
    both.commit(3, 9)
    ((_, report),) = both.reports
    assert (report.drafts, report.draft_us) == ((replace(TOLD, base=3),), 10), "the gateway learns when, not what"
    assert both.metrics.round_trip_seconds.count("draft_model") == 1


def test_what_is_opened_under_other_numbers_or_none_goes_by_the_gateway(both: Both) -> None:
    for number in (0, NUMBER + 1):
        both.open(drafter=replace(REQUEST, hand_over=number))
        both.commit(2, 8)
        left = both.draft()
        assert not both.told
        assert not both.verifier
        assert left == ((DRAFT,) if number == 0 else ())


def test_a_drafter_that_is_opened_late_hears_what_it_was_not_opened_with(both: Both) -> None:
    both.say_to_verifier((V, REQUEST))
    both.commit(2, 8)
    missed = both.commit(3, 9)
    both.say_to_drafter(drafting.Opened(D, replace(REQUEST, token_ids=(5, 6, 8))))
    assert isinstance(both.drafter[0], drafting.Opened)
    assert both.told == [(missed,)]


def test_drafts_of_an_earlier_opening_are_dropped(both: Both) -> None:
    both.open()
    both.draft(replace(DRAFT, draw=2 << 32))
    assert not both.verifier


@pytest.mark.parametrize("end", ["finished", "failed", "closed", "stream"])
def test_nothing_is_kept_of_what_has_ended(both: Both, end: str) -> None:
    both.open()
    if end == "finished":
        both.commit(2, 8, FinishReason.LENGTH)
        assert len(both.told) == 1, "the drafter ends it by the last commit"
    elif end == "failed":
        failure = SequenceFailure(ID, ValueError())
        both.door.note_outputs([verifying.StreamOutput(V, CommitBatch(()), (failure,))])
    else:
        both.say_to_verifier((V, verifying.Close(ID) if end == "closed" else verifying.StreamEnded()))
    both.commit(3, 9)
    both.draft()
    assert len(both.told) == (end == "finished")
    assert not [event for event in both.verifier if isinstance(event[1], DraftBatch)]
    if end == "failed":
        both.door.take_drafts([(D, SequenceFailure(ID, ValueError()))])
    else:
        both.say_to_drafter(drafting.StreamEnded(D) if end == "stream" else drafting.Closed(D, ID))
    assert not both.door.num_pairs


def test_a_verifier_that_waits_has_its_thread_draft_if_the_drafter_is_free() -> None:
    both = Both(by_one_thread=True)
    both.open()
    both.commit(2, 8, waits=True)
    assert both.told, "its opening is not handled yet"
    both.engine.num_handled = 2
    both.drafter.clear()
    both.commit(3, 9)
    assert both.told.pop(), "the next step is launched already"
    both.engine.num_handled = 3
    both.drafter.clear()
    commit = both.commit(4, 10, waits=True)
    assert [event.batch.commits for event in both.engine.here] == [(commit,)]
    assert both.told == [()], "once a step runs its own thread goes on"
    both.engine.num_handled = 5
    both.commit(5, 11, waits=True)
    assert len(both.engine.here) == 2
