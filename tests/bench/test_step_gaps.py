"""A gap is what lies between two steps on the GPU, and its parts are what the host did in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.step_gaps import gaps, read_lanes, table
from slipstream.timeline import FileTimeline

STEP, GAP = 4e-3, 2e-4


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Ten steps; in each gap 50 us of committing, 30 of scheduling, 40 of building, then the call to launch."""
    timeline = FileTimeline(tmp_path / "trace.json")
    for i in range(10):
        start = 1.0 + i * (STEP + GAP)
        timeline.add("GPU", "2 sequences", start, start + STEP)
        end = start + STEP
        for name, begin, micros in (("commit", 0, 50), ("schedule", 60, 30), ("build", 100, 40), ("commit", 900, 70)):
            timeline.add("schedule", name, end + begin * 1e-6, end + (begin + micros) * 1e-6)
        timeline.add("launch", "2 sequences", end + 150e-6, end + 190e-6)
    timeline.write()
    return tmp_path / "trace.json"


def test_what_the_host_does_while_the_gpu_works_is_no_part_of_the_gap(trace: Path) -> None:
    (found,) = gaps(read_lanes(trace)).values()
    assert len(found) == 9
    for gap in found:
        parts = (gap.total, gap.commit, gap.schedule, gap.build, gap.launch, gap.rest)
        assert parts == pytest.approx((200, 50, 30, 40, 50, 30), abs=1.0)


def test_the_table_has_a_line_for_each_kind_of_step(trace: Path) -> None:
    heading, line = table(trace)
    assert heading.split()[-6:] == ["gap", "commit", "schedule", "build", "launch", "rest"]
    assert line.split()[:3] == ["2", "sequences", "200"]
