"""The command lines of the three services, and the order in which they start."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from launcher.processes import ProcessConfig, Processes, ServiceProcess
from launcher.stack import StackConfig, drafter_command, gateway_command, num_cores, verifier_command

ECHO = Path(__file__).parents[1] / "wire" / "echo_service.py"


def test_the_verifier_gets_every_core_that_no_drafter_needs(tmp_path: Path) -> None:
    alone = StackConfig(model=tmp_path)
    beside = StackConfig(model=tmp_path, draft_model=tmp_path)
    assert alone.verifier_threads == num_cores()
    assert beside.verifier_threads == max(1, num_cores() - 1)
    assert StackConfig(model=tmp_path, num_threads=3).verifier_threads == 3


def test_commands_name_model_addresses_and_peers(tmp_path: Path) -> None:
    config = StackConfig(model=tmp_path, draft_model=tmp_path, tenants=tmp_path, listen="127.0.0.1:7")
    verifier = verifier_command(config)
    assert verifier[1:5] == ["-m", "verifier_svc", "--listen", "127.0.0.1:0"]
    assert str(tmp_path) in verifier
    assert drafter_command(config, tmp_path)[1:3] == ["-m", "drafter_svc"]
    gateway = gateway_command(config, "v:1", "d:2")
    assert gateway[3:] == [
        "--listen",
        "127.0.0.1:7",
        "--verifier",
        "v:1",
        "--drafter",
        "d:2",
        "--tenants",
        str(tmp_path),
    ]


def test_without_a_drafter_the_gateway_is_told_of_none(tmp_path: Path) -> None:
    assert "--drafter" not in gateway_command(StackConfig(model=tmp_path), "v:1", "")


@pytest.mark.parametrize("field", ["model", "draft_model", "tenants"])
def test_a_path_that_is_not_there_is_named(tmp_path: Path, field: str) -> None:
    paths = {"model": tmp_path, field: tmp_path / "absent"}
    with pytest.raises(ValueError, match="absent does not exist"):
        StackConfig(**paths)  # type: ignore[arg-type]


def test_services_start_in_order_and_the_gateway_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    echo = [sys.executable, str(ECHO), "127.0.0.1:0"]
    seen: list[tuple[str, str]] = []

    def gateway(config: StackConfig, verifier: str, drafter: str) -> list[str]:
        seen.append((verifier, drafter))
        return echo

    monkeypatch.setattr("launcher.stack.verifier_command", lambda config: echo)
    monkeypatch.setattr("launcher.stack.drafter_command", lambda config, model: echo)
    monkeypatch.setattr("launcher.stack.gateway_command", gateway)
    from launcher.stack import start_stack

    started: list[ServiceProcess] = []
    with Processes(ProcessConfig(start_seconds=10, stop_seconds=5)) as processes:
        addresses = start_stack(processes, StackConfig(model=tmp_path, draft_model=tmp_path), started.append)
    assert [service.name for service in started] == ["verifier", "drafter", "gateway"]
    assert seen == [(addresses.verifier, addresses.drafter)]
    assert not any(service.running for service in started)
