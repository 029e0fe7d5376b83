"""One request's spans in the gateway: begun when it was received, ended with its counts, one for each sample."""

from __future__ import annotations

from gateway.completion import Timings, Usage
from gateway.request_spans import RequestSpans
from slipstream.request import SamplingParams, SequenceRequest
from slipstream.telemetry.spans import NO_TRACER
from tests.telemetry.memory import Memory, is_child, traceparent

PARENT = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"


def samples(number: int) -> list[SequenceRequest]:
    return [
        SequenceRequest(
            sequence_id=index + 1, token_ids=(1,), num_prompt_tokens=1, sampling=SamplingParams(), tenant="acme",
            request_id="mine", sample_index=index,
        )
        for index in range(number)
    ]  # fmt: skip


def test_a_request_lasts_from_its_receipt_to_its_end_and_has_its_queue_inside() -> None:
    memory, times = Memory(), iter([100.0, 107.0])
    spans = RequestSpans(memory.tracer, PARENT, clock=lambda: next(times))
    (begun,) = spans.begun(samples(1))
    spans.ended(0, "STOP", Usage(num_passes=2, completion_tokens=5, accepted_tokens=3), Timings(queue_us=2_000_000))
    queue, request = memory.spans
    assert (request.start_time, request.end_time) == (100 * 10**9, 107 * 10**9)
    assert (queue.name, queue.start_time, queue.end_time) == ("queue", 100 * 10**9, 102 * 10**9)
    assert is_child(queue, request)
    assert f"{request.context.trace_id:032x}" == "1" * 32
    assert begun.traceparent == traceparent(request)
    assert request.status.is_ok
    assert {name: request.attributes[f"slipstream.{name}"] for name in ("tenant", "outcome", "completion_tokens")} == {
        "tenant": "acme",
        "outcome": "STOP",
        "completion_tokens": 5,
    }


def test_each_sample_is_a_span_of_its_own_and_ends_once() -> None:
    memory = Memory()
    spans = RequestSpans(memory.tracer, "")
    begun = spans.begun(samples(2))
    assert len({request.traceparent for request in begun}) == 2
    for index in (0, 1, 1):
        spans.ended(index, "LENGTH", Usage(), Timings())
    assert [span.attributes["slipstream.sample"] for span in memory.spans] == [0, 1]


def test_a_request_that_never_ran_ends_as_an_error() -> None:
    memory = Memory()
    spans = RequestSpans(memory.tracer, "")
    spans.begun(samples(2))
    spans.refused("RESOURCE_EXHAUSTED")
    assert [(span.status.is_ok, span.status.description) for span in memory.spans] == [
        (False, "RESOURCE_EXHAUSTED")
    ] * 2


def test_without_a_tracer_requests_stay_as_they_are() -> None:
    spans = RequestSpans(NO_TRACER, PARENT)
    assert spans.begun(samples(1)) == samples(1)
    spans.ended(0, "STOP", Usage(), Timings())
