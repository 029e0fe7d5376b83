"""Verifier, drafter and gateway of one machine: their command lines and order of start. Knows flags; no gRPC."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from launcher.processes import Processes, ServiceProcess
from slipstream.config import service_environment

LOOPBACK = "127.0.0.1:0"

Started = Callable[[ServiceProcess], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class StackConfig:
    """Three services on one machine. The services check what is theirs."""

    model: Path  # the target's checkpoint
    draft_model: Path | None = None  # None: no drafter runs, the gateway drafts by n-gram
    tenants: Path | None = None  # None: one tenant, no keys
    dtype: str = "bfloat16"
    listen: str = LOOPBACK  # the gateway's
    verifier_listen: str = LOOPBACK
    drafter_listen: str = LOOPBACK
    num_threads: int = 0  # of the verifier; 0 = the cores there are, less one for a drafter

    def __post_init__(self) -> None:
        for path in (self.model, self.draft_model, self.tenants):
            if path is not None and not path.exists():
                raise ValueError(f"{path} does not exist; `slipstream model fetch` prints where the default model is")

    @property
    def verifier_threads(self) -> int:
        return self.num_threads or max(1, num_cores() - (self.draft_model is not None))


@dataclass(frozen=True, kw_only=True, slots=True)
class Addresses:
    verifier: str
    drafter: str  # empty if none runs
    gateway: str


def num_cores() -> int:
    """Those this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def start_stack(processes: Processes, config: StackConfig, started: Started = lambda service: None) -> Addresses:
    """Starts all, tells each when it is ready, and returns when the gateway answers. Stopping is the caller's."""
    verifier = processes.start("verifier", verifier_command(config), service_environment(config.verifier_threads))
    drafter = None
    if config.draft_model is not None:
        command = drafter_command(config, config.draft_model)
        drafter = processes.start("drafter", command, service_environment(1))
    for service in (verifier, drafter):
        if service is not None:
            processes.wait_ready(service)
            started(service)
    drafter_address = drafter.address if drafter else ""
    command = gateway_command(config, verifier.address, drafter_address)
    gateway = processes.start("gateway", command, service_environment(1))
    processes.wait_ready(gateway)
    started(gateway)
    return Addresses(verifier=verifier.address, drafter=drafter_address, gateway=gateway.address)


def verifier_command(config: StackConfig) -> list[str]:
    command = _module("verifier_svc", config.verifier_listen)
    command += ["--model", str(config.model), "--dtype", config.dtype]
    return [*command, "--num-threads", str(config.verifier_threads)]


def drafter_command(config: StackConfig, draft_model: Path) -> list[str]:
    command = _module("drafter_svc", config.drafter_listen)
    command += ["--model", str(draft_model), "--target-model", str(config.model)]
    return [*command, "--dtype", config.dtype, "--num-threads", "1"]


def gateway_command(config: StackConfig, verifier: str, drafter: str) -> list[str]:
    command = [*_module("gateway", config.listen), "--verifier", verifier]
    if drafter:
        command += ["--drafter", drafter]
    if config.tenants is not None:
        command += ["--tenants", str(config.tenants)]
    return command


def _module(name: str, listen: str) -> list[str]:
    return [sys.executable, "-m", name, "--listen", listen]
