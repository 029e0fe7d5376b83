"""Figures from usage and timings: definitions, sums, and no division by nothing."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from launcher.figures import Figures, comparison, speedup, time_spent
from slipstream.wire.v1 import generation_pb2 as pb


def make_figures(*, tokens: int = 11, seconds: float = 2.0) -> Figures:
    usage = pb.Usage(
        completion_tokens=tokens,
        num_passes=5,
        num_drafts=4,
        num_draft_tokens=12,
        accepted_tokens=6,
        accepted_per_position=[4, 2, 0],
        submitted_per_position=[4, 4, 4],
    )
    timings = pb.Timings(
        first_token_us=500_000, total_us=int(500_000 + seconds * 1e6), verify_us=22_000, wait_us=1_100, wire_us=550
    )
    figures = Figures()
    figures.add(usage, timings)
    return figures


def test_speed_counts_tokens_after_the_first() -> None:
    assert make_figures().tokens_per_second == pytest.approx(10 / 2.0)


def test_acceptance_length_counts_the_bonus_and_only_passes_with_drafts() -> None:
    assert make_figures().acceptance_length == 1 + 6 / 4
    assert make_figures().tokens_per_pass == 11 / 5


def test_acceptance_per_position_is_of_what_was_submitted_there() -> None:
    assert make_figures().acceptance_per_position == [1.0, 0.5, 0.0]


def test_time_is_per_output_token() -> None:
    figures = make_figures()
    assert figures.per_token_ms(figures.verify_us) == pytest.approx(2.0)


def test_sums_are_of_counts_not_of_rates() -> None:
    figures = make_figures(tokens=11, seconds=1.0)
    figures.merge(make_figures(tokens=31, seconds=9.0))
    assert figures.tokens_per_second == pytest.approx(40 / 10.0)
    assert figures.accepted_per_position == [8, 4, 0]


def test_nothing_at_all_is_zero_and_not_an_error() -> None:
    nothing = Figures()
    assert (nothing.tokens_per_second, nothing.acceptance_length, nothing.acceptance_per_position) == (0, 1, [])
    assert speedup(nothing, nothing) == 0


def test_tables_say_that_there_were_no_drafts() -> None:
    console = Console(width=120, record=True, file=StringIO())
    console.print(comparison([("chat", make_figures(), Figures())]), time_spent([("plain", make_figures())]))
    text = console.export_text()
    assert "1.00 0.50 0.00" in text
    assert "2.50" in text
