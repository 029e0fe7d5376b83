"""`slipstream up`: the services of one machine until someone stops them. Knows what to print; no flags of services."""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path

import grpc

from launcher import run_file
from launcher.peer import capacity, connected
from launcher.processes import Processes
from launcher.stack import Service, Stack, start_stack
from launcher.supervisor import Supervisor
from launcher.topology import Topology
from slipstream.wire.tls import ClientTls

ASK_SECONDS = 5.0


def run_up(topology: Topology, run_folder: Path, *, verbose: bool, watch_key: str = "") -> None:
    """Raises ServiceFailed if a service does not start; once all have, one that ends is started again."""
    start = time.monotonic()

    def started(service: Service) -> None:
        print(ready_line(service, time.monotonic() - start, topology.client_tls), flush=True)

    try:
        with Processes(sink=_to_stderr if verbose else _to_nowhere, tls=topology.client_tls) as processes:
            stack = start_stack(processes, topology, started)
            for line in strangers(stack, topology.client_tls):
                _report(line)
            with run_file.written(run_folder, stack):
                if watch_key:
                    print(f"watch at {web_address(stack.services[-1], topology.client_tls)}/#{watch_key}", flush=True)
                print("Ctrl-C stops all", flush=True)
                Supervisor(processes, stack.services, report=_report).run(math.inf)
    except KeyboardInterrupt:
        print("stopped", flush=True)


def ready_line(service: Service, seconds: float, tls: ClientTls | None = None) -> str:
    spec = service.spec
    line = f"{spec.name:<9} {service.address:<21} pid {service.process.pid:<7} ready after {seconds:.1f} s"
    if spec.kind == "gateway":
        return f"{line}  OpenAI API at {web_address(service, tls)}/v1" if spec.http else line
    try:
        with connected(service.address, ASK_SECONDS, tls) as peer:
            info = peer.model(spec.kind)
            beside = f"; with drafter {peer.model('drafter').name}" if spec.drafter_options else ""
    except grpc.RpcError:
        return line  # it may have died just now; the supervisor will say so
    return f"{line}  {info.name} in {info.dtype} on {info.device}: {capacity(info)}{beside}"


def strangers(stack: Stack, tls: ClientTls | None = None) -> list[str]:
    """What there is to say of drafters that no verifier here shares a vocabulary with: they draft for nobody."""
    try:
        targets = {_vocabulary(address, "verifier", tls) for address in stack.addresses("verifier")}
        drafters = {address: _vocabulary(address, "drafter", tls) for address in stack.addresses("drafter")}
    except grpc.RpcError:
        return []  # one may have died just now
    unknown = [address for address, vocabulary in drafters.items() if targets and vocabulary not in targets]
    return [
        f"warning: the drafter at {address} has another vocabulary than the target, so it drafts for nobody; "
        "give a draft model of the target's vocabulary"
        for address in unknown
    ]


def _vocabulary(address: str, kind: str, tls: ClientTls | None) -> str:
    with connected(address, ASK_SECONDS, tls) as peer:
        return peer.model(kind).vocabulary_hash


def web_address(gateway: Service, tls: ClientTls | None) -> str:
    return f"{'http' if tls is None else 'https'}://{gateway.spec.http}"


def _report(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _to_stderr(service: str, line: str) -> None:
    is_json = line.startswith("{")  # a log that a program reads; it names its service itself
    print(line if is_json else f"[{service}] {line}", file=sys.stderr, flush=True)


def _to_nowhere(service: str, line: str) -> None:
    """The last lines are kept by the process itself, to say why it ended."""
