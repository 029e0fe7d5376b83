"""Spans as OpenTelemetry's library makes and exports them; what is said where they cannot be."""

from __future__ import annotations

import sys
import time

import pytest

from slipstream.telemetry import otlp
from slipstream.telemetry.spans import NO_TRACER
from tests.telemetry.collector import collecting
from tests.telemetry.memory import Memory, is_child, traceparent


def test_a_parent_is_named_by_its_trace_context() -> None:
    memory = Memory()
    outer = memory.tracer.start("outer", "", 1.0)
    memory.tracer.start("inner", outer.traceparent, 1.5, tokens=3).end(2.0, passes=2)
    outer.end(3.0)
    inner, found = memory.spans
    assert is_child(inner, found)
    assert outer.traceparent.startswith(traceparent(found).removesuffix("01"))
    assert dict(inner.attributes) == {"slipstream.tokens": 3, "slipstream.passes": 2}


@pytest.mark.parametrize("nonsense", ["", "00-0-0-0", "x" * 5000, "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
def test_a_context_that_makes_no_sense_begins_a_trace(nonsense: str) -> None:
    memory = Memory()
    memory.tracer.start("alone", nonsense, 1.0).end(2.0)
    assert memory.spans[0].parent is None


def test_a_caller_that_does_not_sample_gets_no_spans() -> None:
    memory = Memory()
    memory.tracer.start("unwanted", "00-" + "1" * 32 + "-" + "2" * 16 + "-00", 1.0).end(2.0)
    assert memory.spans == ()


def test_all_spans_are_exported_at_the_end() -> None:
    with collecting() as (collector, address):
        with otlp.exporting(address, "gateway") as tracer:
            tracer.start("request", "", time.time()).end(time.time())
        assert [span.name for span in collector.of("gateway")] == ["request"]
        assert collector.paths == {"/v1/traces"}


def test_without_an_endpoint_nothing_is_loaded_or_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    otlp.check_endpoint("")
    with otlp.exporting("", "gateway") as tracer:
        assert tracer is NO_TRACER


@pytest.mark.parametrize("endpoint", ["collector:4318", "grpc://h:4317", "http://", "http://h:4318/v1/metrics"])
def test_an_address_that_is_none_is_refused(endpoint: str) -> None:
    with pytest.raises(ValueError, match=f"otlp-endpoint is '{endpoint}'; it must be"):
        otlp.check_endpoint(endpoint)


@pytest.mark.parametrize("endpoint", ["http://h:4318", "http://h:4318/", "https://h/v1/traces"])
def test_base_and_whole_addresses_are_taken(endpoint: str) -> None:
    otlp.check_endpoint(endpoint)


def test_a_missing_library_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(
        ValueError, match=r"opentelemetry\.sdk\.trace is not installed; pip install '\.\[otel\]' in the repository"
    ):
        otlp.check_endpoint("http://h:4318")
