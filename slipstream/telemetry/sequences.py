"""The spans of the sequences that are open on one stream. Knows their openings and rounds; no message, no exporter."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from slipstream.request import SequenceRequest
from slipstream.telemetry.rounds import Rounds
from slipstream.telemetry.spans import NO_TRACER, Span, Tracer


@dataclass(slots=True)
class _Traced:
    span: Span
    opened_at: float
    rounds: Rounds = field(default_factory=Rounds)


class SequenceSpans:
    """Children of the request's span in the gateway: one for the sequence, in it one for each round or several."""

    def __init__(
        self,
        tracer: Tracer = NO_TRACER,
        service: str = "",
        round_name: str = "",
        *,
        first_is_prefill: bool = False,  # the first round computes the prompt, and what is before it was a queue
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._tracer = tracer
        self._service = service
        self._round_name = round_name
        self._first_is_prefill = first_is_prefill
        self._clock = clock
        self._traced: dict[int, _Traced] = {}

    @property
    def is_on(self) -> bool:
        return self._tracer.is_on

    def opened(self, request: SequenceRequest) -> None:
        """A request that is not traced has no trace here either."""
        if not self.is_on or not request.traceparent:
            return
        now = self._clock()
        span = self._tracer.start(
            f"{self._service} sequence",
            request.traceparent,
            now,
            request=request.request_id,
            tenant=request.tenant,
            sequence=request.sequence_id,
            committed_tokens=len(request.token_ids),
            sample=request.sample_index,
        )
        self._traced[request.sequence_id] = _Traced(span, now)

    def worked(self, sequence_id: int, seconds: float, **counts: int) -> None:
        """A round that ended now."""
        if (traced := self._traced.get(sequence_id)) is None:
            return
        now = self._clock()
        if self._first_is_prefill and not traced.rounds.parts:
            self._tell_prefill(traced, now, seconds)
        traced.rounds.add(now, seconds, **counts)

    def ended(self, sequence_id: int, outcome: str, error: str = "") -> None:
        if (traced := self._traced.pop(sequence_id, None)) is None:
            return
        for part in traced.rounds.parts:
            span = self._tracer.start(self._round_name, traced.span.traceparent, part.start, **part.counts)
            span.end(part.end, rounds=part.num_rounds, busy_us=round(part.busy_seconds * 1e6))
        traced.span.end(self._clock(), error, outcome=outcome)

    def _tell_prefill(self, traced: _Traced, now: float, seconds: float) -> None:
        start = max(traced.opened_at, now - seconds)
        parent = traced.span.traceparent
        self._tracer.start("queue", parent, traced.opened_at).end(start)
        self._tracer.start("prefill", parent, start).end(now)
