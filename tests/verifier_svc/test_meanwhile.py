"""During a step drafts and bounds are taken in; whatever may change who takes part waits for the step's end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from slipstream.exchange import DraftBatch, FeaturesWanted, Update
from verifier_svc.meanwhile import may_come_during_steps, take_in_nothing, undisturbed
from verifier_svc.messages import Close, Event, Message, StreamEnded

DRAFTS, BOUNDS = DraftBatch(()), Update(1, 4, 2, 0)


@pytest.mark.parametrize(
    ("message", "may_come"),
    [(DRAFTS, True), (BOUNDS, True), (Close(1), False), (StreamEnded(), False), (FeaturesWanted(1, 0), False)],
)
def test_only_drafts_and_bounds_may_come_during_a_step(message: Message, may_come: bool) -> None:
    assert may_come_during_steps((1, message)) == may_come


def queue(waiting: list[Event], taken: list[Event]) -> Callable[[Callable[[Event], bool], float], None]:
    """As an engine thread hands events over: in order, up to the first that may not come."""

    def take_in(may_come: Callable[[Event], bool], until: float) -> None:
        while waiting and may_come(waiting[0]):
            taken.append(waiting.pop(0))

    return take_in


@pytest.mark.parametrize(
    ("messages", "num_taken", "stays"),
    [((DRAFTS, BOUNDS, DRAFTS), 3, True), ((DRAFTS, Close(1), DRAFTS), 1, False), ((), 0, True)],
)
def test_what_waits_for_the_end_lets_nothing_behind_it_pass(
    messages: Sequence[Message], num_taken: int, stays: bool
) -> None:
    waiting: list[Event] = [(1, message) for message in messages]
    taken: list[Event] = []
    assert undisturbed(queue(waiting, taken), 0.0) == stays
    assert len(taken) == num_taken
    assert len(waiting) == len(messages) - num_taken


def test_an_engine_without_time_for_it_is_never_disturbed() -> None:
    assert undisturbed(take_in_nothing, 0.0)
