"""Services as child processes: started, awaited, stopped. Knows READY, METRICS and HTTP lines; no service by name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType

import grpc

from launcher import leash
from launcher.peer import SERVING, connected
from slipstream.wire.tls import ClientTls

NUM_LINES_KEPT = 200  # of each service's output, to say why it ended

Sink = Callable[[str, str], None]  # service name, line of its output


class ServiceFailed(RuntimeError):
    """A service did not start, or ended by itself; the message names it and its last words."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProcessConfig:
    """How long services may take. Raises nothing: every value is a bound on patience."""

    start_seconds: float = 90.0  # to READY: loading a model is most of it
    stop_seconds: float = 15.0  # from SIGTERM to SIGKILL; longer than a server's own drain


class ServiceProcess:
    """One service in a process group of its own, so that a Ctrl-C in the terminal does not reach it."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str], sink: Sink) -> None:
        self.name = name
        self.address = ""
        self.metrics_addresses: dict[str, str] = {}  # by service, of which one process may hold two
        self.http_address = ""
        self._lines: deque[str] = deque(maxlen=NUM_LINES_KEPT)
        self._ready = threading.Event()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", leash.__file__, str(os.getpid()), *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, args=(sink,), name=f"{name}-output", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def metrics_address(self) -> str:
        """Of the first service in it; empty if it shows none."""
        return next(iter(self.metrics_addresses.values()), "")

    def wait_ready(self, seconds: float, tls: ClientTls | None = None) -> str:
        """The address it serves on. Raises ServiceFailed if it ends, or is not ready and healthy in time."""
        deadline = time.monotonic() + seconds
        self._ready.wait(seconds)
        if not self.address:
            raise ServiceFailed(self._why_not_ready(seconds))
        check_health(self.address, deadline - time.monotonic(), tls)
        return self.address

    def last_words(self) -> str:
        """How it ended, and the last line it wrote, if it had the time to say why."""
        if self._process.wait() == -signal.SIGKILL:
            return f"{self.name} was killed (SIGKILL: by someone, or for want of memory)"
        said = next((line for line in reversed(self._lines) if line.strip()), "it said nothing")
        return f"{self.name} ended with exit code {self._process.wait()}: {said.removeprefix('error: ')}"

    def signal(self, number: signal.Signals) -> None:
        """To the whole group."""
        with suppress(ProcessLookupError, PermissionError):  # macOS says the latter of a group of zombies
            os.killpg(self.pid, number)

    def kill(self) -> None:
        """At once; nothing of the group is left when it returns."""
        self.signal(signal.SIGKILL)
        self._process.wait()
        self._reader.join(1.0)

    def stop(self, seconds: float) -> None:
        """SIGTERM, then after `seconds` SIGKILL; nothing of the group is left when it returns."""
        if self.running:
            self.signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        self.kill()

    def _why_not_ready(self, seconds: float) -> str:
        if self.running:
            return f"{self.name} was not ready within {seconds:g} s; it is slow or hangs"
        self._reader.join(1.0)
        return self.last_words()

    def _read(self, sink: Sink) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if line.startswith("READY "):
                    self.address = line.split()[-1]
                    self._ready.set()
                elif line.startswith("METRICS "):
                    _, service, address = line.split()
                    self.metrics_addresses[service] = address
                elif line.startswith("HTTP "):
                    self.http_address = line.split()[-1]
                else:
                    self._lines.append(line.rstrip("\n"))
                    sink(self.name, line.rstrip("\n"))
        self._process.wait()
        self._ready.set()  # it ended: whoever waits need not wait longer


class Processes:
    """Several services with one life: leaving the context stops them all, the last started first."""

    def __init__(
        self,
        config: ProcessConfig | None = None,
        sink: Sink = lambda name, line: None,
        tls: ClientTls | None = None,  # how services are asked whether they are healthy
    ) -> None:
        self._config = config or ProcessConfig()
        self._sink = sink
        self._tls = tls
        self._services: list[ServiceProcess] = []

    def __enter__(self) -> Processes:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self, name: str, command: Sequence[str], environment: Mapping[str, str]) -> ServiceProcess:
        """Starts a service without waiting for it; several may load at once."""
        service = ServiceProcess(name, command, environment, self._sink)
        self._services.append(service)
        return service

    def wait_ready(self, service: ServiceProcess) -> str:
        return service.wait_ready(self._config.start_seconds, self._tls)

    def discard(self, service: ServiceProcess) -> None:
        """Forgets a service that has ended; what it left running ends too."""
        service.kill()
        self._services.remove(service)

    def stop(self) -> None:
        """A second Ctrl-C while services drain kills what is left."""
        try:
            for service in reversed(self._services):
                service.stop(self._config.stop_seconds)
        finally:
            for service in self._services:
                if service.running:
                    service.signal(signal.SIGKILL)
            self._services.clear()


def check_health(address: str, seconds: float, tls: ClientTls | None = None) -> None:
    """Raises ServiceFailed unless the server at `address` says SERVING in time."""
    with connected(address, max(seconds, 1.0), tls) as peer:
        try:
            health = peer.health(wait=True)
        except grpc.RpcError as error:
            raise ServiceFailed(f"no health from {address}: {error.details()}") from error
    if health != SERVING:
        raise ServiceFailed(f"{address} is {health}")
