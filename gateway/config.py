"""What a gateway needs to know before it starts. Knows addresses and bounds; tenants are in tenants.py."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.peers.addresses import check_target
from gateway.peers.tritonserver import TritonServerConfig
from gateway.watch.key import check_key_hash
from slipstream.metrics.endpoint import check_address as check_metrics_address
from slipstream.telemetry.otlp import check_endpoint
from slipstream.wire.tls import ClientTls, ServerTls

DEFAULT_LISTEN = "127.0.0.1:50050"
DEFAULT_HTTP_LISTEN = "127.0.0.1:50080"  # of `slipstream up`; a gateway by itself serves HTTP only if asked to
_LEAST: Final = {
    "recovery_seconds": 0,
    "max_running": 1,
    "max_queued": 0,
    "max_queued_per_tenant": 0,
    "max_queue_seconds": 0,
    "max_unsent_tokens": 1,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class GatewayConfig:
    """Raises ValueError naming field and value."""

    listen: str = DEFAULT_LISTEN  # host:port, port 0 = any free one
    tls: ServerTls | None = None  # of both listeners; None: plaintext
    verifiers: tuple[str, ...]  # host:port each, or dns:///name:port for all that the name stands for
    drafters: tuple[str, ...] = ()  # likewise
    peer_tls: ClientTls | None = None  # for calls to verifiers and drafters; None: plaintext
    tritonserver: TritonServerConfig | None = None  # whose model may draft, too; None: there is none
    tenants: Path | None = None  # None: one anonymous tenant
    recovery_seconds: float = 3.0  # how long a sequence waits for a verifier to come back
    http_listen: str = ""  # host:port of the OpenAI-compatible API, port 0 = any free one; empty = not served
    watch_key_sha256: str = ""  # of the key that the page of running requests asks for; empty = there is none
    metrics_listen: str = ""  # host:port of the metrics, port 0 = any free one; empty = not shown
    otlp_endpoint: str = ""  # of the collector that gets traces; empty = there are none
    max_running: int = 256  # requests at one time, of all tenants
    max_queued: int = 256  # requests that wait for others to end
    max_queued_per_tenant: int = 128
    max_queue_seconds: float = 30.0  # longest wait of one
    max_unsent_tokens: int = 1024  # a client that lags further behind is cancelled

    def __post_init__(self) -> None:
        if not self.verifiers:
            raise ValueError("verifiers is empty; give at least one host:port")
        for name in ("verifiers", "drafters"):
            for address in getattr(self, name):
                check_target(name, address)
        check_metrics_address(self.metrics_listen)
        check_endpoint(self.otlp_endpoint)
        check_key_hash("watch_key_sha256", self.watch_key_sha256)
        _check_listen("http_listen", self.http_listen)
        if self.watch_key_sha256 and not self.http_listen:
            raise ValueError("watch_key_sha256 is given, and http_listen is empty; give the address of the page too")
        for name, least in _LEAST.items():
            if not getattr(self, name) >= least:  # NaN is refused too
                raise ValueError(f"{name} is {getattr(self, name)}; it must be >= {least}")


def _check_listen(name: str, listen: str) -> None:
    host, _, port = listen.rpartition(":")
    if listen and (not host or not port.isdecimal() or int(port) > 65535):
        raise ValueError(f"{name} is {listen!r}; it must be host:port, such as 127.0.0.1:0, or empty")
