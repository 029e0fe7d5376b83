"""Counts and times of KServe requests."""

from __future__ import annotations

from gateway.completion import Timings
from gateway.kserve.statistics import Statistics


def test_what_was_done_and_what_failed_is_counted_by_model() -> None:
    statistics = Statistics()
    for _ in range(2):
        statistics.record_done("a", Timings(queue_us=10, total_us=110))
    statistics.record_failed("a", 0.5)
    told = statistics.to_wire("a")
    found = told.inference_stats
    assert (told.inference_count, found.success.count, found.success.ns) == (2, 2, 220_000)
    assert (found.queue.ns, found.compute_infer.ns) == (20_000, 200_000)
    assert (found.fail.count, found.fail.ns) == (1, 500_000_000)
    assert told.last_inference > 0


def test_a_model_that_nobody_asked_has_zeros() -> None:
    told = Statistics().to_wire("b")
    assert (told.name, told.version, told.inference_count, told.last_inference) == ("b", "1", 0, 0)
