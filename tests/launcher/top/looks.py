"""Looks at services as a test wants them, by the services' own instruments."""

from __future__ import annotations

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from launcher.top.look import Look
from slipstream.exchange import Commit
from slipstream.metrics.endpoint import make_registry
from slipstream.metrics.instruments import Gauge, Histogram, Instrument
from slipstream.metrics.passes import PassTally

DRAFTED = Commit(1, 5, (1, 2, 3), num_accepted=2, num_draft_tokens=4, proposer="ngram")
PLAIN = Commit(2, 5, (1,))


def look(name: str, kind: str, at: float, *instruments: Instrument) -> Look:
    text = generate_latest(make_registry(kind, instruments)).decode()
    families = text_string_to_metric_families(text)
    return Look(name=name, at=at, samples=tuple(sample for one in families for sample in one.samples))


def tally(num_drafted: int, num_plain: int = 0) -> PassTally:
    passes = PassTally()
    for _ in range(num_drafted):
        passes.add("a", DRAFTED)
    for _ in range(num_plain):
        passes.add("b", PLAIN)
    return passes


def gateway(at: float, passes: PassTally) -> Look:
    counts = {"slipstream_running_requests": 3.0, "slipstream_queued_requests": 2.0}
    return look("gateway", "gateway", at, passes, *(Gauge(n, "?", lambda v=v: v) for n, v in counts.items()))  # type: ignore[misc]


def verifier(at: float, passes: PassTally, num_steps: int) -> Look:
    counts = {"slipstream_kv_blocks_used": 5.0, "slipstream_kv_blocks": 10.0, "slipstream_running_sequences": 3.0}
    steps = Histogram("slipstream_step_seconds", "?")
    for _ in range(num_steps):
        steps.observe(0.02)
    gauges = [Gauge(n, "?", lambda v=v: v) for n, v in counts.items()]  # type: ignore[misc]
    return look("verifier", "verifier", at, passes, steps, *gauges)
