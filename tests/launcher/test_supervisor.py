"""Supervision: back-off by a clock that the test holds, and real services that come back under their address."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from launcher.processes import ProcessConfig, Processes, ServiceProcess
from launcher.stack import Service, ServiceSpec
from launcher.supervisor import Backoff, Guard, RestartConfig, Supervisor
from tests.launcher.process_table import gone

ECHO = Path(__file__).parents[1] / "wire" / "echo_service.py"
QUICK = RestartConfig(first_delay=0.05, poll_seconds=0.01)


class Script(ServiceSpec):
    """A service whose whole command is given."""

    @property
    def command(self) -> list[str]:
        return [sys.executable, *self.options]


def script(*arguments: str, name: str = "echo", listen: str = "127.0.0.1:0") -> Script:
    return Script(kind=name, name=name, module="", listen=listen, metrics="", options=arguments)


def started(processes: Processes, spec: Script) -> Service:
    """As `start_stack` leaves it: ready, its port known."""
    process = spec.start(processes)
    address = processes.wait_ready(process)
    return Service(script(*spec.options[:1], address, name=spec.name, listen=address), process)


def run_until(supervisor: Supervisor, condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        supervisor.run(0.05)


def test_delays_double_up_to_the_longest_and_start_anew_when_reset() -> None:
    backoff = Backoff(1.0, 5.0)
    assert [backoff.take() for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    backoff.reset()
    assert backoff.take() == 1.0


def test_a_killed_service_comes_back_under_its_address_while_the_other_goes_on() -> None:
    told: list[str] = []
    with Processes(ProcessConfig(start_seconds=20, stop_seconds=5)) as processes:
        services = [started(processes, script(str(ECHO), "127.0.0.1:0", name=name)) for name in ("one", "two")]
        supervisor = Supervisor(processes, services, told.append, QUICK)
        first, second = supervisor.guards
        for _ in range(3):
            assert first.process is not None
            pid = first.process.pid
            first.process.signal(signal.SIGKILL)
            run_until(supervisor, lambda pid=pid: first.is_ready and first.process.pid != pid)  # type: ignore[misc]
            assert gone(pid)
            assert first.process.address == services[0].address
        assert second.process is services[1].process
    assert told[0].startswith("one was killed (SIGKILL")
    assert told[1].startswith(f"one is ready again at {services[0].address}, pid ")
    assert len(told) == 6


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def guard_of(processes: Processes, clock: Clock, told: list[str], config: RestartConfig, *code: str) -> Guard:
    spec = script("-c", *code)
    return Guard(Service(spec, spec.start(processes)), processes, config, told.append, clock)


def wait_for_end(guard: Guard) -> None:
    assert guard.process is not None
    while guard.process.running:
        time.sleep(0.01)


def delays(told: list[str]) -> list[str]:
    return [line.rsplit(" ", 2)[1] for line in told if "starts again" in line]


def test_a_service_that_dies_at_once_is_given_more_and_more_time() -> None:
    clock, told = Clock(), list[str]()
    config = RestartConfig(first_delay=1.0, longest_delay=3.0)
    with Processes() as processes:
        guard = guard_of(processes, clock, told, config, "raise SystemExit('no luck')")
        for _ in range(3):
            wait_for_end(guard)
            guard.poll()
            assert guard.process is None
            guard.poll()
            assert guard.process is None  # the delay is not over
            clock.now += 3.0
            guard.poll()
    assert delays(told) == ["1.0", "2.0", "3.0"]
    assert told[0].startswith("echo ended with exit code 1: no luck; ")


def test_a_service_that_was_healthy_for_a_while_is_given_the_first_delay_again() -> None:
    clock, told = Clock(), list[str]()
    config = RestartConfig(first_delay=1.0, healthy_after=10.0)
    ready = "import time; print('READY echo h:1', flush=True); time.sleep(60)"
    with Processes() as processes:
        guard = guard_of(processes, clock, told, config, ready)
        for healthy in (0.0, 0.0, 20.0):
            clock.now += healthy
            guard.poll()
            assert guard.process is not None
            guard.process.kill()
            guard.poll()
            clock.now += 5.0
            guard.poll()
            while not guard.is_ready:
                guard.poll()
    assert delays(told) == ["1.0", "2.0", "1.0"]


def test_a_machine_that_cannot_start_a_process_is_asked_again() -> None:
    class Failing(Script):
        def start(self, processes: Processes) -> ServiceProcess:
            raise OSError("Cannot allocate memory")

    clock, told = Clock(), list[str]()
    with Processes() as processes:
        process = script("-c", "").start(processes)
        failing = Failing(kind="echo", name="echo", module="", listen="", metrics="", options=())
        guard = Guard(Service(failing, process), processes, RestartConfig(first_delay=1.0), told.append, clock)
        wait_for_end(guard)
        for _ in range(3):
            guard.poll()
            clock.now += 10.0
    assert delays(told) == ["1.0", "2.0", "4.0"]
    assert told[1] == "echo cannot be started: Cannot allocate memory; it starts again in 2.0 s"


def test_a_service_that_hangs_at_its_restart_is_killed_and_started_again() -> None:
    clock, told = Clock(), list[str]()
    config = RestartConfig(start_seconds=7.0, first_delay=1.0)
    with Processes() as processes:
        guard = guard_of(processes, clock, told, config, "import time; time.sleep(60)")
        assert guard.process is not None
        guard.process.kill()
        guard.poll()
        clock.now += 1.0
        guard.poll()
        hanging = guard.process
        assert hanging is not None
        clock.now += 7.0
        guard.poll()
        assert not hanging.running
    assert told[1] == "echo was not ready within 7 s; it is killed"
