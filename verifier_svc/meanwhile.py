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
