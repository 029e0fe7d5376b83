"""A tracer that keeps its spans, for tests to look at. Knows the library's own in-memory exporter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk.trace", reason="the extra `otel` is not installed")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from slipstream.telemetry.otlp import OtlpTracer


class Memory:
    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = OtlpTracer(provider)

    @property
    def spans(self) -> Sequence[Any]:
        """Those that have ended, in that order."""
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> list[Any]:
        return [span for span in self.spans if span.name == name]


def traceparent(span: Any) -> str:
    return f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-01"


def is_child(span: Any, parent: Any) -> bool:
    same_trace = bool(span.context.trace_id == parent.context.trace_id)
    return same_trace and span.parent is not None and span.parent.span_id == parent.context.span_id
