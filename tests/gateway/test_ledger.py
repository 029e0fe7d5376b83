"""Counts and times of one request."""

from __future__ import annotations

from gateway.ledger import Ledger
from slipstream.exchange import Commit, StepReport


def ledger() -> Ledger:
    return Ledger(received=10.0, prompt_tokens=3, num_draft_tokens=2, seed=9)


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
    book.record_draft_batch(draft_us=5, wire_us=6)
    book.record_draft_batch(draft_us=7, wire_us=8)
    timings = book.timings(10.5)
    assert (timings.first_token_us, timings.queue_us, timings.total_us) == (100_000, 70_000, 500_000)
    assert (timings.verify_us, timings.wait_us, timings.draft_us, timings.wire_us) == (50_000, 120, 12, 14)


def test_more_drafts_than_the_gateway_asked_for_do_not_break_the_count() -> None:
    book = ledger()
    book.record_commit(Commit(1, 3, (1,) * 5, num_accepted=4, num_draft_tokens=4), StepReport(), 10.1)
    assert book.usage.accepted_per_position == [1, 1]
