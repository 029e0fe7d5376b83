"""`slipstream up`: the services of one machine until someone stops them. Knows what to print; no flags of services."""

from __future__ import annotations

import math
import sys
import time

from launcher.processes import Processes, ServiceProcess
from launcher.stack import StackConfig, start_stack


def run_up(config: StackConfig, *, verbose: bool) -> None:
    """Raises ServiceFailed as soon as a service ends by itself; the others are stopped then."""
    start = time.monotonic()

    def started(service: ServiceProcess) -> None:
        seconds = time.monotonic() - start
        print(f"{service.name:<9}{service.address:<22}pid {service.pid:<8}ready after {seconds:.1f} s", flush=True)

    try:
        with Processes(sink=_to_stderr if verbose else _to_nowhere) as processes:
            start_stack(processes, config, started)
            print("Ctrl-C stops all", flush=True)
            processes.watch(math.inf)
    except KeyboardInterrupt:
        print("stopped", flush=True)


def _to_stderr(service: str, line: str) -> None:
    print(f"[{service}] {line}", file=sys.stderr, flush=True)


def _to_nowhere(service: str, line: str) -> None:
    """The last lines are kept by the process itself, to say why it ended."""
