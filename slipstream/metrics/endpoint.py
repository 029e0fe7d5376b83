"""Shows metrics as Prometheus text over HTTP, on a thread of its own. Knows a port and instruments; no service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from slipstream.metrics.instruments import Instrument
from slipstream.version import version

MAX_PORT = 65535
SILENT_SECONDS: Final = 10.0  # each connection has a thread; one that says nothing loses it


class _Exporter(Collector):
    def __init__(self, service: str, instruments: Iterable[Instrument]) -> None:
        self._service = service
        self._instruments = tuple(instruments)

    def collect(self) -> Iterator[Metric]:
        build = GaugeMetricFamily("slipstream_build_info", "Always 1.", labels=("service", "version"))
        build.add_metric((self._service, version()), 1)
        yield build
        for instrument in self._instruments:
            yield from instrument.collect()


def make_registry(service: str, instruments: Iterable[Instrument]) -> CollectorRegistry:
    """What one service shows: its instruments, its version, its process."""
    registry = CollectorRegistry()
    registry.register(_Exporter(service, instruments))
    ProcessCollector(registry=registry)
    return registry


def check_address(listen: str) -> None:
    """Raises ValueError unless it is empty or host:port."""
    if listen:
        _split(listen)


@asynccontextmanager
async def shown(service: str, listen: str, instruments: Iterable[Instrument]) -> AsyncIterator[str]:
    """Serves at `listen` for as long as the block lasts and says where on stdout; not at all if `listen` is empty."""
    if not listen:
        yield ""
        return
    host, port = _split(listen)
    try:
        server, thread = start_http_server(port, host, make_registry(service, instruments))
    except OSError as error:
        raise OSError(f"cannot show metrics on {listen}: {error.strerror}; give a free port of this machine") from error
    server.RequestHandlerClass = _impatient(server.RequestHandlerClass, SILENT_SECONDS)
    address = f"{host}:{server.server_port}"
    print(f"METRICS {service} {address}", flush=True)
    try:
        yield address
    finally:
        await asyncio.to_thread(server.shutdown)
        server.server_close()
        thread.join()


def _impatient(handler: Any, seconds: float) -> Any:
    """The same that ends what stays silent or breaks, and writes no traceback of it."""

    class Impatient(handler):  # type: ignore[misc]  # the library's class has no public name
        timeout = seconds

        def handle(self) -> None:
            with suppress(OSError):
                super().handle()

    return Impatient


def _split(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > MAX_PORT:
        raise ValueError(f"metrics-listen is {listen!r}; it must be host:port, such as 127.0.0.1:0, or empty")
    return host, int(port)
