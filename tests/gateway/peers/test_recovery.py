"""How long and how often a sequence looks for a verifier."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from gateway.peers import recovery as recovery_module
from gateway.peers.recovery import MAX_LOSSES, Recovery
from slipstream.errors import Exhausted
from tests.gateway.fakes import eventually


class Arrivals:
    """What Recovery needs of a pool."""

    def __init__(self) -> None:
        self.subscribed: list[Callable[[], None]] = []

    def subscribe(self, on_arrival: Callable[[], None]) -> None:
        self.subscribed.append(on_arrival)

    def unsubscribe(self, on_arrival: Callable[[], None]) -> None:
        if on_arrival in self.subscribed:
            self.subscribed.remove(on_arrival)


class Story:
    def __init__(self, seconds: float) -> None:
        self.pool = Arrivals()
        self.told: list[str] = []
        self.recovery = Recovery(
            self.pool,  # type: ignore[arg-type]
            seconds,
            retry=lambda: self.told.append("retry"),
            give_up=lambda: self.told.append("give up"),
        )


async def test_an_arrival_is_asked_at_once_also_by_who_was_refused_there() -> None:
    story = Story(60)
    story.recovery.refusals["a:1"] = Exhausted("full")
    story.recovery.wait()
    story.recovery.wait()
    (on_arrival,) = story.pool.subscribed
    on_arrival()
    assert (story.told, story.recovery.refusals) == (["retry"], {})
    story.recovery.stop()
    assert not story.pool.subscribed


async def test_who_was_refused_by_all_asks_again_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery_module, "RETRY_SECONDS", 0.01)
    story = Story(60)
    story.recovery.refusals["a:1"] = Exhausted("full")
    story.recovery.wait()
    await eventually(lambda: story.told == ["retry"])
    story.recovery.stop()


async def test_waits_that_end_in_a_refusal_add_up_to_the_time_allowed() -> None:
    story = Story(0.1)
    while not story.told:
        story.recovery.wait()
        await asyncio.sleep(0.02)
        story.recovery.stop()  # one verifier took it, and then did not
    assert story.told == ["give up"]


async def test_a_token_gives_it_all_its_time_and_all_verifiers_again() -> None:
    story = Story(0.1)
    story.recovery.wait()
    await asyncio.sleep(0.05)
    story.recovery.stop()
    story.recovery.lost += ["a:1"] * MAX_LOSSES
    hopeless_before = story.recovery.is_hopeless
    story.recovery.note_progress()
    assert (hopeless_before, story.recovery.is_hopeless) == (True, False)
    story.recovery.wait()
    await asyncio.sleep(0.07)
    assert story.told == []
    story.recovery.stop()
