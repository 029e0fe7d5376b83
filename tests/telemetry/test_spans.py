"""Where nothing is traced, spans may be made and ended all the same."""

from __future__ import annotations

from slipstream.telemetry.spans import NO_TRACER


def test_nothing_comes_of_nothing() -> None:
    span = NO_TRACER.start("request", "", 1.0, tenant="acme")
    span.end(2.0, "failed", tokens=1)
    assert (span.traceparent, NO_TRACER.is_on) == ("", False)
