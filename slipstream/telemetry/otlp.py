"""Spans by OpenTelemetry, exported over OTLP. The one place that knows its library, which need not be installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

from slipstream.telemetry.spans import NO_TRACER, Attribute, Span, Tracer
from slipstream.version import version

TRACES_PATH: Final = "/v1/traces"
EXPORT_SECONDS: Final = 5.0  # for one batch; a collector that is slow or gone costs spans, and no request waits
DELAY_MS: Final = 1000  # between two batches
_PREFIX: Final = "slipstream."


class OtlpSpan:
    def __init__(self, span: Any) -> None:
        self._span = span

    @property
    def traceparent(self) -> str:
        context = self._span.get_span_context()
        return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"

    def end(self, at: float, error: str = "", **attributes: Attribute) -> None:
        from opentelemetry.trace import Status, StatusCode

        self._span.set_attributes(_named(attributes))
        if error:
            self._span.set_status(Status(StatusCode.ERROR, error))
        self._span.end(_nanoseconds(at))


class OtlpTracer:
    """Of one service. Ended spans are exported by a thread of the library, in batches and within a bound."""

    is_on = True

    def __init__(self, provider: Any) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer = provider.get_tracer("slipstream")
        self._propagator = TraceContextTextMapPropagator()

    def start(self, name: str, parent: str, at: float, **attributes: Attribute) -> Span:
        context = self._propagator.extract({"traceparent": parent})
        return OtlpSpan(
            self._tracer.start_span(name, context, start_time=_nanoseconds(at), attributes=_named(attributes))
        )


@contextmanager
def exporting(endpoint: str, service: str) -> Iterator[Tracer]:
    """A tracer for as long as the block lasts; what it holds then is exported. Without an endpoint it keeps nothing."""
    if not endpoint:
        yield NO_TRACER
        return
    provider = _provider(endpoint, service)
    try:
        yield OtlpTracer(provider)
    finally:
        provider.shutdown()


def check_endpoint(endpoint: str) -> None:
    """Raises ValueError unless spans could be sent there, or it is empty."""
    if not endpoint:
        return
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/", TRACES_PATH):
        raise ValueError(
            f"otlp-endpoint is {endpoint!r}; it must be the address of a collector that takes OTLP over HTTP, "
            "such as http://127.0.0.1:4318, or empty"
        )
    _require_library()


def _require_library() -> None:
    try:
        import opentelemetry.exporter.otlp.proto.http
        import opentelemetry.sdk.trace  # noqa: F401
    except ImportError as error:
        raise ValueError(
            f"otlp-endpoint is given, and {error.name} is not installed; pip install '.[otel]' in the repository, "
            "or leave the option out"
        ) from error


def _provider(endpoint: str, service: str) -> Any:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource({"service.name": f"slipstream-{service}", "service.version": version()})
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    exporter = OTLPSpanExporter(endpoint.removesuffix(TRACES_PATH).rstrip("/") + TRACES_PATH, timeout=EXPORT_SECONDS)
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=DELAY_MS))
    return provider


def _named(attributes: dict[str, Attribute]) -> dict[str, Attribute]:
    return {_PREFIX + name: value for name, value in attributes.items()}


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)
