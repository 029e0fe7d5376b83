"""How long drafts take to come back: of which commits, and of which drafts."""

from __future__ import annotations

from itertools import count

from slipstream.exchange import Commit, Draft, DraftToken, LawKind
from slipstream.metrics.instruments import Histogram
from slipstream.request import FinishReason
from verifier_svc.round_trips import RoundTrips

SECONDS = "seconds"


def draft(base: int) -> Draft:
    return Draft(1, base, "draft_model", 0, (DraftToken(5, LawKind.ONE_HOT),))


def observed(*happened: Commit | Draft | int) -> list[float]:
    """Number of round trips and their sum; everything takes place a second after what is before it."""
    histogram, ticks = Histogram(SECONDS, "", ("proposer",)), count()
    trips = RoundTrips(histogram, clock=lambda: float(next(ticks)))
    for one in happened:
        match one:
            case Commit():
                trips.note_commits([one])
            case Draft():
                trips.note_drafts([one])
            case int():
                trips.note_close(one)
    samples = {sample.name: sample.value for metric in histogram.collect() for sample in metric.samples}
    return [samples.get(f"{SECONDS}_{what}", 0.0) for what in ("count", "sum")]


def test_the_first_draft_on_all_that_is_committed_ends_the_round_trip() -> None:
    assert observed(Commit(1, 3, (7, 8)), draft(5), draft(5)) == [1, 1]


def test_what_was_drafted_ahead_of_the_commit_is_no_answer_to_it() -> None:
    assert observed(Commit(1, 3, (7, 8)), draft(3), draft(5)) == [1, 2]


def test_a_commit_that_nobody_answered_gives_way_to_the_next() -> None:
    assert observed(Commit(1, 3, (7,)), Commit(1, 4, (7,)), draft(4), draft(5)) == [1, 2]


def test_of_sequences_that_ended_nothing_is_kept() -> None:
    last = Commit(1, 3, (7,), finish_reason=FinishReason.LENGTH)
    assert observed(last, draft(4)) == observed(Commit(1, 3, (7,)), 1, draft(4)) == [0, 0]
