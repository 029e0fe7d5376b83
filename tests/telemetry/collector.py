"""A collector of traces over OTLP/HTTP that keeps what it gets. Knows the protocol; no service of ours."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

pytest.importorskip("opentelemetry.proto", reason="the extra `otel` is not installed")

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    def __init__(self) -> None:
        self.paths: set[str] = set()
        self._spans: list[tuple[str, Any]] = []

    def take(self, path: str, body: bytes) -> None:
        self.paths.add(path)
        for of_resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            names = {one.key: one.value.string_value for one in of_resource.resource.attributes}
            for of_scope in of_resource.scope_spans:
                self._spans += [(names["service.name"], span) for span in of_scope.spans]

    def of(self, service: str) -> list[Any]:
        return [span for name, span in list(self._spans) if name == f"slipstream-{service}"]


@contextmanager
def collecting() -> Iterator[tuple[Collector, str]]:
    """The collector and its address."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.take(self.path, gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *values: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield collector, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
