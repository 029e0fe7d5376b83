"""Keeps services alive: one that dies is started again under its address while the others go on. Knows no model."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from launcher.processes import Processes, ServiceProcess
from launcher.stack import Service, ServiceSpec

Report = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class RestartConfig:
    """How patiently a service is started again, in seconds."""

    first_delay: float = 0.1
    longest_delay: float = 10.0  # each delay is twice the one before, up to this
    healthy_after: float = 10.0  # ready for so long, it has recovered: the next delay is the first one again
    start_seconds: float = 90.0  # to READY; then it is killed and started again
    poll_seconds: float = 0.1


class Backoff:
    """The waits before restarts: each twice the one before, within bounds."""

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self._longest = longest
        self._next = first

    def take(self) -> float:
        delay, self._next = self._next, min(2 * self._next, self._longest)
        return delay

    def reset(self) -> None:
        self._next = self._first


class Guard:
    """One service: the process it is now, or when there will be one again."""

    def __init__(
        self, service: Service, processes: Processes, config: RestartConfig, report: Report, clock: Callable[[], float]
    ) -> None:
        self.spec: ServiceSpec = service.spec
        self.process: ServiceProcess | None = service.process  # None: dead, waiting for its restart
        self._processes = processes
        self._config = config
        self._report = report
        self._clock = clock
        self._backoff = Backoff(config.first_delay, config.longest_delay)
        self._since = clock()  # when it started, became ready, or died: of the three the last
        self._delay = 0.0
        self._ready = True

    @property
    def is_ready(self) -> bool:
        return self.process is not None and self._ready

    def poll(self) -> None:
        """To be called often; returns at once."""
        lasted = self._clock() - self._since
        if self.process is None:
            if lasted >= self._delay:
                self._start()
        elif not self.process.running:
            self._bury(self.process)
        elif not self._ready:
            self._look(self.process, lasted)
        elif lasted >= self._config.healthy_after:
            self._backoff.reset()

    def _start(self) -> None:
        self._ready, self._since = False, self._clock()
        try:
            self.process = self.spec.start(self._processes)
        except OSError as error:  # no memory or no process id left; the others must go on
            self._wait(f"{self.spec.name} cannot be started: {error}")

    def _look(self, process: ServiceProcess, lasted: float) -> None:
        if process.address:
            self._report(
                f"{self.spec.name} is ready again at {process.address}, pid {process.pid}, after {lasted:.1f} s"
            )
            self._ready, self._since = True, self._clock()
        elif lasted >= self._config.start_seconds:
            self._report(f"{self.spec.name} was not ready within {self._config.start_seconds:g} s; it is killed")
            process.kill()

    def _bury(self, process: ServiceProcess) -> None:
        self._processes.discard(process)
        self.process = None
        self._wait(process.last_words())

    def _wait(self, reason: str) -> None:
        self._since, self._delay = self._clock(), self._backoff.take()
        self._report(f"{reason}; it starts again in {self._delay:.1f} s")


class Supervisor:
    """Polls every service from one thread, the one that must start them: the kernel's leash is held by a thread."""

    def __init__(
        self,
        processes: Processes,
        services: Iterable[Service],
        report: Report,
        config: RestartConfig | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config = config or RestartConfig()
        self.guards = [Guard(service, processes, self._config, report, clock) for service in services]

    def run(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for guard in self.guards:
                guard.poll()
            time.sleep(self._config.poll_seconds)
