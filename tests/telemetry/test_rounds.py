"""Rounds keep their times and counts, however many there are, in a bounded number of parts."""

from __future__ import annotations

from itertools import pairwise

import pytest

from slipstream.telemetry.rounds import Rounds


def test_a_few_rounds_are_parts_of_their_own() -> None:
    rounds = Rounds()
    rounds.add(10.0, 2.0, tokens=3)
    rounds.add(11.0, 0.5, tokens=1)
    assert [(part.start, part.end, part.num_rounds, part.counts["tokens"]) for part in rounds.parts] == [
        (8.0, 10.0, 1, 3),
        (10.5, 11.0, 1, 1),
    ]


@pytest.mark.parametrize("num_rounds", [5, 8, 9, 100, 1000])
def test_many_are_merged_with_their_neighbours_and_nothing_is_lost(num_rounds: int) -> None:
    rounds = Rounds(max_parts=8)
    for n in range(num_rounds):
        rounds.add(n + 1.0, 0.5, tokens=2, accepted_tokens=1)
    parts = rounds.parts
    assert len(parts) <= 8
    assert sum(part.num_rounds for part in parts) == num_rounds
    assert sum(part.counts["tokens"] for part in parts) == 2 * num_rounds
    assert sum(part.busy_seconds for part in parts) == pytest.approx(0.5 * num_rounds)
    assert (parts[0].start, parts[-1].end) == (0.5, num_rounds)
    assert all(earlier.end < later.start for earlier, later in pairwise(parts))
