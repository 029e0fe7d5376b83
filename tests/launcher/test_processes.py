"""Supervision of real processes: readiness, health, last words, and that nothing is ever left."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from launcher.processes import ProcessConfig, Processes, ServiceFailed
from slipstream.config import service_environment
from tests.launcher.process_table import gone

ECHO = Path(__file__).parents[1] / "wire" / "echo_service.py"
ENVIRONMENT = service_environment(1)
QUICK = ProcessConfig(start_seconds=10, stop_seconds=5)


def script(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def echo(listen: str = "127.0.0.1:0") -> list[str]:
    return [sys.executable, str(ECHO), listen]


def test_a_service_is_ready_healthy_and_gone_afterwards() -> None:
    with Processes(QUICK) as processes:
        service = processes.start("echo", echo(), ENVIRONMENT)
        host, port = processes.wait_ready(service).split(":")
        assert (host, int(port) > 0, service.running) == ("127.0.0.1", True, True)
    assert not service.running
    assert gone(service.pid)


def test_a_service_that_ends_before_it_is_ready_says_why() -> None:
    with Processes(QUICK) as processes:
        service = processes.start("echo", echo("nowhere"), ENVIRONMENT)
        with pytest.raises(ServiceFailed, match=r"echo ended with exit code 2: listen is 'nowhere'; it must be"):
            processes.wait_ready(service)


def test_a_service_that_never_gets_ready_is_given_up_and_stopped() -> None:
    with Processes(ProcessConfig(start_seconds=0.3, stop_seconds=5)) as processes:
        service = processes.start("sleeper", script("import time; time.sleep(60)"), ENVIRONMENT)
        with pytest.raises(ServiceFailed, match=r"sleeper was not ready within 0.3 s"):
            processes.wait_ready(service)
    assert gone(service.pid)


def test_a_ready_line_without_health_is_not_believed() -> None:
    text = "import time; print('READY liar 127.0.0.1:1', flush=True); time.sleep(60)"
    with Processes(ProcessConfig(start_seconds=1, stop_seconds=5)) as processes:
        service = processes.start("liar", script(text), ENVIRONMENT)
        with pytest.raises(ServiceFailed, match=r"no health from 127\.0\.0\.1:1"):
            processes.wait_ready(service)


def test_a_discarded_service_leaves_no_child() -> None:
    text = "import subprocess; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True)"
    lines: list[str] = []
    with Processes(QUICK, sink=lambda name, line: lines.append(line)) as processes:
        service = processes.start("parent", script(text), ENVIRONMENT)
        while service.running or not lines:
            time.sleep(0.01)
        processes.discard(service)
        assert gone(int(lines[0]))
        assert service.last_words() == f"parent ended with exit code 0: {lines[0]}"


def test_a_service_that_ignores_sigterm_is_killed_with_its_children() -> None:
    child = "import subprocess, sys, signal; signal.signal(15, signal.SIG_IGN);"
    text = f"{child} p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); p.wait()"
    lines: list[str] = []
    with Processes(ProcessConfig(stop_seconds=0.3), sink=lambda name, line: lines.append(line)) as processes:
        service = processes.start("stubborn", script(text), ENVIRONMENT)
        while not lines:
            time.sleep(0.01)
    assert gone(service.pid)
    assert gone(int(lines[0]))


def test_output_goes_to_the_sink_by_name() -> None:
    seen: list[tuple[str, str]] = []
    with Processes(QUICK, sink=lambda name, line: seen.append((name, line))) as processes:
        said = "print('one'); print('METRICS talker y:2'); print('HTTP talker z:3'); print('READY talker x:1')"
        service = processes.start("talker", script(said), ENVIRONMENT)
        while service.running:
            time.sleep(0.01)
    assert seen == [("talker", "one")]
    assert (service.address, service.metrics_address, service.http_address) == ("x:1", "y:2", "z:3")


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
def test_killing_the_launcher_kills_its_services(tmp_path: Path) -> None:
    text = (
        "import time, sys; from launcher.processes import *; from slipstream.config import service_environment\n"
        "with Processes() as processes:\n"
        "    service = processes.start('sleeper', ['sleep', '60'], service_environment(1))\n"
        "    print(service.pid, flush=True); time.sleep(60)\n"
    )
    launcher = subprocess.Popen(script(text), stdout=subprocess.PIPE, text=True)
    assert launcher.stdout is not None
    pid = int(launcher.stdout.readline())
    assert os.getpgid(pid) == pid
    launcher.kill()
    launcher.communicate(timeout=5)
    assert gone(pid)
