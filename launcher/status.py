"""`slipstream status`: health, version, model and load of each service. Knows how to ask and print; starts nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial

import grpc
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from launcher.passes import PassTotals, passes_of
from launcher.peer import SERVING, UNREACHABLE, connected
from launcher.run_file import Listed
from slipstream.wire.tls import ClientTls

ASK_SECONDS = 2.0
MAX_AT_ONCE = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceStatus:
    """One service as it is now; what it does not know is empty or 0."""

    name: str
    address: str
    kind: str = ""  # verifier, drafter, gateway
    health: str = UNREACHABLE
    version: str = ""
    model: str = ""
    num_sequences: int = 0
    kv_blocks_used: int = 0
    kv_blocks_total: int = 0
    passes: PassTotals | None = None  # None: it shows no metrics, or none that can be reached

    @property
    def is_serving(self) -> bool:
        return self.health == SERVING


def ask_all(services: Iterable[Listed], tls: ClientTls | None = None) -> list[ServiceStatus]:
    """In their order; they are asked at the same time."""
    with ThreadPoolExecutor(MAX_AT_ONCE) as threads:
        return list(threads.map(partial(ask, tls=tls), services))


def ask(service: Listed, tls: ClientTls | None = None) -> ServiceStatus:
    passes = passes_of(service.metrics, ASK_SECONDS) if service.metrics else None
    unknown = ServiceStatus(name=service.name, address=service.address, passes=passes)
    try:
        with connected(service.address, ASK_SECONDS, tls) as peer:
            health, kind = peer.health(), service.kind or peer.kind()
            if kind not in ("verifier", "drafter"):
                return replace(unknown, kind=kind, health=health)
            info = peer.model(kind)
    except grpc.RpcError:
        return unknown
    return replace(
        unknown,
        kind=kind,
        health=health,
        version=info.version,
        model=info.name,
        num_sequences=info.num_sequences,
        kv_blocks_used=info.kv_blocks_used,
        kv_blocks_total=info.kv_blocks_total,
    )


def as_json_text(statuses: Iterable[ServiceStatus]) -> str:
    return json.dumps([asdict(status) for status in statuses])


def as_table(statuses: Sequence[ServiceStatus]) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), caption="\n".join(map(served, statuses)).strip())
    for name in ("service", "address", "health"):
        table.add_column(name, no_wrap=True)
    for name in ("seqs", "KV blocks", "acc. len", "tok/pass"):
        table.add_column(name, justify="right", no_wrap=True)
    for status in statuses:
        colour = "green" if status.is_serving else "red"
        health = Text(status.health, style=colour)
        name = status.kind if status.name == status.address else status.name  # one that was named by its address only
        table.add_row(name, status.address, health, *held(status), *rates(status))
    return table


def served(status: ServiceStatus) -> str:
    return f"{status.name}: {status.model}, version {status.version}" if status.model else ""


def held(status: ServiceStatus) -> tuple[str, str]:
    """Sequences, and KV blocks used of those there are."""
    if not status.kv_blocks_total:
        return "", ""
    return str(status.num_sequences), f"{status.kv_blocks_used}/{status.kv_blocks_total}"


def rates(status: ServiceStatus) -> tuple[str, str]:
    """Acceptance length, and tokens per pass."""
    passes = status.passes
    return (f"{passes.acceptance_length:.2f}", f"{passes.tokens_per_pass:.2f}") if passes else ("", "")
