"""What a verifier does while a GPU computes a step for it, and with whom. Knows messages; no step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from slipstream.exchange import DraftBatch, Update
from verifier_svc.messages import Event, StreamOutput

HANDS_OFF_SECONDS: Final = 3e-4  # before a step is expected to end: from then on its end is all that is waited for

Send = Callable[[list[StreamOutput]], None]
TakeIn = Callable[[Callable[[Event], bool], float], None]  # hands over what may come, until a time of time.monotonic()


def take_in_nothing(may_come: Callable[[Event], bool], until: float) -> None:
    """For engines whose steps leave no time for it."""


def may_come_during_steps(event: Event) -> bool:
    """Whether it changes nothing that a step under way builds on."""
    return isinstance(event[1], DraftBatch | Update)


def undisturbed(take_in: TakeIn, until: float) -> bool:
    """Takes in what may come; False if something came that waits for the step's end, and may change who takes part."""
    waiting: list[Event] = []

    def may_come(event: Event) -> bool:
        if not may_come_during_steps(event):
            waiting.append(event)
        return not waiting

    take_in(may_come, until)
    return not waiting
