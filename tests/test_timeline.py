"""A timeline is a file that trace viewers read, bounded, and nothing when it is off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slipstream.timeline import FileTimeline, NoTimeline, timeline_in


def events(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text())["traceEvents"]


def test_spans_lie_in_their_lanes_with_microseconds(tmp_path: Path) -> None:
    with timeline_in(tmp_path / "trace.json") as timeline:
        timeline.add("schedule", "step", 2.0, 2.0005)
        timeline.add("GPU", "1 x 5", 2.0005, 2.004)
        with timeline.span("schedule", "next"):
            pass
    names = {e["tid"]: e["args"]["name"] for e in events(tmp_path / "trace.json") if e["name"] == "thread_name"}
    spans = [e for e in events(tmp_path / "trace.json") if e["ph"] == "X"]
    assert [(names[e["tid"]], e["name"]) for e in spans] == [
        ("schedule", "step"),
        ("GPU", "1 x 5"),
        ("schedule", "next"),
    ]
    assert (spans[1]["ts"], spans[1]["dur"]) == (2000500.0, 3500.0)
    assert 0 <= spans[2]["dur"] < 1e6


def test_only_the_newest_spans_are_kept(tmp_path: Path) -> None:
    timeline = FileTimeline(tmp_path / "trace.json", max_spans=3)
    for i in range(10):
        timeline.add("lane", str(i), i, i + 1)
    timeline.write()
    assert [e["name"] for e in events(tmp_path / "trace.json") if e["ph"] == "X"] == ["7", "8", "9"]


def test_a_span_is_noted_even_if_its_block_fails(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), timeline_in(tmp_path / "trace.json") as timeline, timeline.span("lane", "fails"):
        raise RuntimeError
    assert [e["name"] for e in events(tmp_path / "trace.json") if e["ph"] == "X"] == ["fails"]


def test_without_a_file_nothing_is_noted() -> None:
    with timeline_in(None) as timeline:
        assert isinstance(timeline, NoTimeline)
        timeline.add("lane", "name", 0, 1)
        with timeline.span("lane", "name"):
            pass


def test_a_file_that_cannot_be_written_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(OSError), timeline_in(tmp_path / "nowhere" / "trace.json"):
        raise AssertionError("serving began")
