"""One sequence's spans: below the request's, with queue, prefill and rounds, each in its time."""

from __future__ import annotations

import pytest

from slipstream.request import SamplingParams, SequenceRequest
from slipstream.telemetry.sequences import SequenceSpans
from tests.telemetry.memory import Memory, is_child

PARENT = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def request(traceparent: str = PARENT) -> SequenceRequest:
    return SequenceRequest(
        sequence_id=7, token_ids=(1, 2), num_prompt_tokens=2, sampling=SamplingParams(), tenant="acme",
        request_id="mine", traceparent=traceparent,
    )  # fmt: skip


@pytest.fixture
def memory() -> Memory:
    return Memory()


def test_queue_prefill_and_passes_are_children_of_the_sequence(memory: Memory) -> None:
    clock = Clock()
    spans = SequenceSpans(memory.tracer, "verifier", "verify", first_is_prefill=True, clock=clock)
    spans.opened(request())
    clock.now = 103.0
    spans.worked(7, 1.0, tokens=1)
    clock.now = 104.0
    spans.worked(7, 0.5, tokens=3, accepted_tokens=2)
    spans.ended(7, "LENGTH")
    (sequence,) = memory.named("verifier sequence")
    assert (f"{sequence.context.trace_id:032x}", f"{sequence.parent.span_id:016x}") == ("1" * 32, "2" * 16)
    assert (sequence.start_time, sequence.end_time) == (100 * 10**9, 104 * 10**9)
    assert sequence.attributes["slipstream.request"] == "mine"
    assert sequence.attributes["slipstream.outcome"] == "LENGTH"
    others = [span for span in memory.spans if span is not sequence]
    assert all(is_child(span, sequence) for span in others)
    times = {(span.name, span.start_time / 1e9, span.end_time / 1e9) for span in others}
    assert times == {("queue", 100, 102), ("prefill", 102, 103), ("verify", 102, 103), ("verify", 103.5, 104)}
    assert memory.named("verify")[-1].attributes["slipstream.accepted_tokens"] == 2


def test_a_long_sequence_has_a_bounded_number_of_spans(memory: Memory) -> None:
    spans = SequenceSpans(memory.tracer, "drafter", "draft", clock=Clock())
    spans.opened(request())
    for _ in range(5000):
        spans.worked(7, 0.001, paths=2)
    spans.ended(7, "STOP")
    rounds = memory.named("draft")
    assert len(rounds) <= 32
    assert sum(span.attributes["slipstream.rounds"] for span in rounds) == 5000
    assert sum(span.attributes["slipstream.paths"] for span in rounds) == 10_000


def test_a_failure_is_an_error_with_its_reason(memory: Memory) -> None:
    spans = SequenceSpans(memory.tracer, "verifier", "verify")
    spans.opened(request())
    spans.ended(7, "INVALID_ARGUMENT", "top_p is 7")
    (sequence,) = memory.spans
    assert (sequence.status.is_ok, sequence.status.description) == (False, "top_p is 7")


def test_a_request_that_is_not_traced_and_one_that_is_unknown_leave_nothing(memory: Memory) -> None:
    spans = SequenceSpans(memory.tracer, "verifier", "verify")
    spans.opened(request(traceparent=""))
    spans.worked(7, 1.0)
    spans.ended(7, "STOP")
    spans.ended(8, "STOP")
    assert memory.spans == ()


def test_without_a_tracer_nothing_is_kept() -> None:
    spans = SequenceSpans()
    spans.opened(request())
    spans.worked(7, 1.0)
    spans.ended(7, "STOP")
    assert not spans.is_on
