"""Prompts take as much of a step as keeps it within bounds, whatever tokens cost on the machine."""

from __future__ import annotations

import pytest

from slipstream.engine.buckets import padded_count
from slipstream.engine.prompt_pace import FEWEST, SLOWEST, TELLING, FixedPace, MeasuredPace

PLAIN = 4.9e-3  # seconds of a step without prompts


def seconds(num_tokens: int, each: float, free: int) -> float:
    """Of a step that reads weights for as long as `free` tokens take to compute."""
    return PLAIN + max(0, num_tokens - free) * each


@pytest.mark.parametrize("free", [0, 64, 200])
@pytest.mark.parametrize("each", [1e-5, 3e-5, 6e-5])
def test_steps_stay_within_the_bound_and_come_near_it(each: float, free: int) -> None:
    pace, used = MeasuredPace(), 8
    for _ in range(5):
        pace.note(0, PLAIN)
    took = []
    for _ in range(30):
        room = pace.room(used)
        took.append(seconds(used + room, each, free))
        pace.note(room, took[-1])
    settled = took[10:]
    assert free or max(settled) < 1.95 * PLAIN  # where tokens stop being free the next padded size may cost much more
    assert sum(settled) / len(settled) < (SLOWEST + 0.1) * PLAIN
    assert max(settled) > 1.3 * PLAIN, "prompts are given too little"


def test_a_prompt_whose_tokens_become_dearer_gets_fewer() -> None:
    pace, used = MeasuredPace(), 8
    pace.note(0, PLAIN)
    took = []
    for turn in range(60):  # attention over what the prompt has so far
        room = pace.room(used)
        took.append(seconds(used + room, 1e-5 + turn * 6e-7, 0))
        pace.note(room, took[-1])
    assert max(took[10:]) < 1.95 * PLAIN


def test_padded_sizes_are_filled_and_a_prompt_always_gets_on() -> None:
    pace = MeasuredPace()
    assert pace.room(8) + 8 == padded_count(248) == 224
    assert pace.room(16) + 16 == 256
    pace.note(0, PLAIN)
    for _ in range(20):
        pace.note(240, 100 * PLAIN)
    assert pace.room(0) == pace.room(100) == FEWEST


def test_before_anything_is_known_and_with_too_little_to_know_it_stays() -> None:
    pace = MeasuredPace()
    before = pace.room(16)
    pace.note(200, 1.0)
    pace.note(0, PLAIN)
    pace.note(TELLING - 1, 1.0)
    assert pace.room(16) == before


def test_one_step_that_something_else_held_up_matters_little() -> None:
    pace = MeasuredPace()
    pace.note(0, PLAIN)
    for _ in range(10):
        pace.note(200, 1.7 * PLAIN)
    before = pace.room(0)
    pace.note(200, 15 * PLAIN)
    assert pace.room(0) > before / 2
    for _ in range(4):
        pace.note(200, 1.7 * PLAIN)
    assert pace.room(0) >= before - 32


def test_a_number_that_was_asked_for_stays() -> None:
    pace = FixedPace(100)
    pace.note(0, PLAIN)
    pace.note(100, 1.0)
    assert pace.room(8) == 100
