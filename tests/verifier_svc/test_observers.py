"""A stream's log counts and traces its sequences for whoever observes."""

from __future__ import annotations

import logging

from slipstream.request import SamplingParams, SequenceRequest
from tests.telemetry.memory import Memory
from verifier_svc.metrics import VerifierMetrics
from verifier_svc.observers import Observers

REQUEST = SequenceRequest(
    sequence_id=1, token_ids=(1,), num_prompt_tokens=1, sampling=SamplingParams(), tenant="acme",
    traceparent="00-" + "1" * 32 + "-" + "2" * 16 + "-01",
)  # fmt: skip


def test_an_end_is_counted_and_traced() -> None:
    memory, metrics = Memory(), VerifierMetrics()
    log = Observers(metrics, tracer=memory.tracer).sequence_log(logging.getLogger("test"))
    log.opened(REQUEST)
    log.spans.worked(1, 0.1, tokens=1)
    log.closed(1)
    assert metrics.sequences.value("acme", "CLOSED") == 1
    assert [span.name for span in memory.spans] == ["queue", "prefill", "verify", "verifier sequence"]


def test_without_a_tracer_it_is_only_counted() -> None:
    metrics = VerifierMetrics()
    log = Observers(metrics).sequence_log(logging.getLogger("test"))
    log.opened(REQUEST)
    log.closed(1)
    assert not log.spans.is_on
    assert metrics.sequences.value("acme", "CLOSED") == 1
