"""Counts and times of one request."""

from __future__ import annotations

import pytest

from gateway.ledger import Ledger
from gateway.metrics import GatewayMetrics
from slipstream.exchange import Commit, StepReport
from slipstream.metrics.endpoint import make_registry


def ledger(metrics: GatewayMetrics | None = None) -> Ledger:
    return Ledger(metrics or GatewayMetrics(), "acme", received=10.0, prompt_tokens=3, num_draft_tokens=2, seed=9)


def test_passes_drafts_and_positions_are_counted_as_submitted_and_accepted() -> None:
    book = ledger()
    book.record_commit(Commit(1, 3, (1,), num_cached_tokens=2), StepReport(), 10.1)
    book.record_commit(Commit(1, 4, (1, 2), num_accepted=1, num_draft_tokens=2), StepReport(), 10.2)
    book.record_commit(Commit(1, 6, (1, 2, 3), num_accepted=2, num_draft_tokens=2), StepReport(), 10.3)
    usage = book.usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens, usage.seed) == (3, 6, 2, 9)
    assert (usage.num_passes, usage.num_drafts, usage.num_draft_tokens, usage.accepted_tokens) == (3, 2, 4, 3)
    assert (usage.submitted_per_position, usage.accepted_per_position) == ([2, 2], [2, 1])


def test_times_are_microseconds_and_the_first_step_is_not_queueing() -> None:
    book = ledger()
    book.record_commit(Commit(1, 3, (1,), wait_us=50), StepReport(step_us=30_000), 10.1)
    book.record_commit(Commit(1, 4, (1,), wait_us=70), StepReport(step_us=20_000), 10.2)
    book.record_draft_batch("draft_model", draft_us=5, wire_us=6)
    book.record_draft_batch("draft_model", draft_us=7, wire_us=8)
    timings = book.timings(10.5)
    assert (timings.first_token_us, timings.queue_us, timings.total_us) == (100_000, 70_000, 500_000)
    assert (timings.verify_us, timings.wait_us, timings.draft_us, timings.wire_us) == (50_000, 120, 12, 14)


def test_more_drafts_than_the_gateway_asked_for_do_not_break_the_count() -> None:
    book = ledger()
    book.record_commit(Commit(1, 3, (1,) * 5, num_accepted=4, num_draft_tokens=4), StepReport(), 10.1)
    assert book.usage.accepted_per_position == [1, 1]


def test_what_a_request_adds_to_the_metrics_of_all() -> None:
    metrics = GatewayMetrics()
    book = ledger(metrics)
    book.record_commit(Commit(1, 3, (1,), num_cached_tokens=2), StepReport(step_us=30_000), 10.1)
    drafted = Commit(1, 4, (1, 2, 3), num_accepted=2, num_draft_tokens=2, proposer="draft_model", wait_us=50)
    book.record_commit(drafted, StepReport(), 10.4)
    book.record_draft_batch("draft_model", draft_us=5, wire_us=0)
    book.record_end("LENGTH", 10.5)
    registry = make_registry("gateway", vars(metrics).values())

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"slipstream_{name}", {"tenant": "acme", **labels})

    assert value("requests_total", outcome="LENGTH") == 1
    assert (value("prompt_tokens_total"), value("cached_tokens_total")) == (3, 2)
    assert value("time_to_first_token_seconds_sum") == pytest.approx(0.1)
    assert value("request_queue_seconds_sum") == pytest.approx(0.07)
    assert value("time_per_output_token_seconds_sum") == pytest.approx(0.1)
    assert value("request_seconds_sum") == pytest.approx(0.5)
    assert value("wait_seconds_sum", proposer="draft_model") == pytest.approx(50e-6)
    assert value("verify_seconds_count", proposer="none") == 1
    assert value("draft_seconds_count", proposer="draft_model") == 1
    assert value("wire_seconds_count", proposer="draft_model") is None  # pushed ahead of need
    assert value("committed_tokens_total", proposer="draft_model") == 3


def test_a_request_of_one_token_has_no_time_per_later_token() -> None:
    metrics = GatewayMetrics()
    book = ledger(metrics)
    book.record_commit(Commit(1, 3, (1,)), StepReport(), 10.1)
    book.record_end("LENGTH", 10.5)
    assert (metrics.output_token_seconds.count("acme"), metrics.first_token_seconds.count("acme")) == (0, 1)
