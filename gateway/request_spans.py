"""The spans of one request in the gateway: one for each sample, and its time in the queue. Knows counts; no peer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from gateway.completion import Timings, Usage
from slipstream.request import SequenceRequest
from slipstream.telemetry.spans import Span, Tracer

_GOOD_ENDS: Final = ("STOP", "LENGTH", "CANCELLED")


class RequestSpans:
    """Made when the request is received. As in logs, neither prompt nor output is in it."""

    def __init__(self, tracer: Tracer, parent: str, clock: Callable[[], float] = time.time) -> None:
        self._tracer = tracer
        self._parent = parent  # the caller's trace context; empty = none
        self._clock = clock
        self._received = clock() if tracer.is_on else 0.0
        self._spans: dict[int, Span] = {}  # by sample; those that have not ended
        self.request_id = ""  # known once it is admitted

    def begun(self, requests: Sequence[SequenceRequest]) -> list[SequenceRequest]:
        """With the context by which verifiers and drafters join in."""
        self.request_id = requests[0].request_id
        return [self._begin(request) for request in requests] if self._tracer.is_on else list(requests)

    def refused(self, outcome: str) -> None:
        """None of the samples that were begun ever ran."""
        for span in self._spans.values():
            span.end(self._clock(), outcome, outcome=outcome)
        self._spans.clear()

    def ended(self, sample: int, outcome: str, usage: Usage, timings: Timings) -> None:
        if (span := self._spans.pop(sample, None)) is None:
            return
        if usage.num_passes:
            queued_until = self._received + timings.queue_us * 1e-6
            self._tracer.start("queue", span.traceparent, self._received).end(queued_until)
        span.end(
            self._clock(),
            "" if outcome in _GOOD_ENDS else outcome,
            outcome=outcome,
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            completion_tokens=usage.completion_tokens,
            passes=usage.num_passes,
            draft_tokens=usage.num_draft_tokens,
            accepted_tokens=usage.accepted_tokens,
            first_token_us=timings.first_token_us,
            verify_us=timings.verify_us,
            draft_us=timings.draft_us,
            wait_us=timings.wait_us,
        )

    def _begin(self, request: SequenceRequest) -> SequenceRequest:
        span = self._tracer.start(
            "request",
            self._parent,
            self._received,
            request=request.request_id,
            tenant=request.tenant,
            sample=request.sample_index,
        )
        self._spans[request.sample_index] = span
        return replace(request, traceparent=span.traceparent)
