"""What more tokens take longer, told apart from what every call takes."""

from __future__ import annotations

import pytest

from gateway.control.call_times import CallTimes


def test_calls_for_few_and_for_many_tokens_tell_the_shares_apart() -> None:
    times = CallTimes()
    for num_tokens in (3, 5, 9, 4, 9, 3):
        times.note(num_tokens, 0.010 + 0.002 * num_tokens)
    assert times.seconds_of_tokens(5, 0.020) == pytest.approx(0.010)


def test_while_all_calls_ask_for_equally_many_all_time_is_the_calls_own() -> None:
    times = CallTimes()
    assert times.seconds_of_tokens(5, 0.1) == 0.0
    for seconds in (0.01, 0.05, 0.02):
        times.note(5, seconds)
    assert times.seconds_of_tokens(5, 0.02) == 0.0


def test_the_share_is_never_negative_nor_more_than_the_call() -> None:
    falling, steep = CallTimes(), CallTimes()
    for num_tokens in (1, 9, 1, 9):
        falling.note(num_tokens, 1.0 / num_tokens)
        steep.note(num_tokens, 0.1 * num_tokens)
    assert falling.seconds_of_tokens(9, 0.1) == 0.0
    assert steep.seconds_of_tokens(9, 0.1) == 0.1


def test_old_calls_are_forgotten() -> None:
    times = CallTimes()
    for _ in range(300):
        times.note(1, 1.0)
        times.note(9, 9.0)
    for _ in range(300):
        times.note(1, 0.1)
        times.note(9, 0.9)
    assert times.seconds_of_tokens(5, 10.0) == pytest.approx(0.5, rel=1e-2)
