"""Verifier, drafters and a gateway as real processes for a measurement. Knows their command lines; measures nothing."""

from __future__ import annotations

import hashlib
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from launcher.processes import ProcessConfig, Processes, ServiceProcess
from launcher.stack import BETWEEN
from launcher.topology import ONE_PROCESS, PLACEMENTS, SEPARATE
from slipstream.config import service_environment

START_SECONDS = 300.0  # a large model and its graphs
OWN: Final = ("--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--log-level", "warning")


@dataclass(frozen=True, kw_only=True, slots=True)
class Drafter:
    model: Path
    proposer: str
    device: str = "cpu"
    num_threads: int = 1
    cores: str = ""  # those it may use, as taskset names them; empty: any
    kv_memory_mib: int = 512
    options: tuple[str, ...] = ()  # any others, as its command line has them


@dataclass(frozen=True, kw_only=True, slots=True)
class Services:
    """What is started. Raises ValueError if there is no such placement."""

    model: Path
    device: str = "cpu"
    dtype: str = "bfloat16"
    widen: str = ""
    num_threads: int = 1
    max_num_seqs: int = 64
    max_model_len: int = 0
    kv_memory_mib: int = 512
    tensor_parallel_size: int = 1
    trace: Path | None = None  # where the verifier writes its timeline
    drafters: tuple[Drafter, ...] = ()
    placement: str = SEPARATE

    def __post_init__(self) -> None:
        if self.placement not in PLACEMENTS:
            raise ValueError(f"placement is {self.placement!r}; it must be one of {', '.join(PLACEMENTS)}")
        if self.placement == ONE_PROCESS and len(self.drafters) != 1:
            raise ValueError(f"placement is {ONE_PROCESS} and there are {len(self.drafters)} drafters; give one")

    @property
    def hands_over(self) -> bool:
        """Whether verifier and drafter do so in memory, and then wait for one another (launcher/host.py)."""
        return self.placement == ONE_PROCESS and all(drafter.device != "cpu" for drafter in self.drafters)

    @property
    def overlaps(self) -> bool:
        """Whether verifier and drafters compute at one time: they do unless they share cores."""
        return self.device != "cpu" or all(drafter.device != "cpu" or drafter.cores for drafter in self.drafters)


@dataclass(frozen=True, slots=True)
class Running:
    verifier: ServiceProcess
    drafters: Mapping[str, ServiceProcess]  # by proposer; perhaps the verifier's own process
    gateway: ServiceProcess

    @property
    def metrics(self) -> dict[str, str]:
        """Where each service shows its own: verifier, gateway, drafters by proposer."""
        of_drafters = {name: process.metrics_addresses["drafter"] for name, process in self.drafters.items()}
        return {"verifier": self.verifier.metrics_address, "gateway": self.gateway.metrics_address, **of_drafters}


@contextmanager
def running(services: Services, tenants: Sequence[dict[str, Any]]) -> Iterator[Running]:
    """All of them, until the block ends. Raises ServiceFailed."""
    config = ProcessConfig(start_seconds=START_SECONDS)
    with tempfile.TemporaryDirectory() as folder, Processes(config) as processes:
        make = _one_process if services.placement == ONE_PROCESS else _separate
        verifier, drafters = make(processes, services)
        addresses = ["--verifier", processes.wait_ready(verifier)]
        for service in drafters.values():
            addresses += ["--drafter", processes.wait_ready(service)]
        file = Path(folder) / "tenants.yaml"
        file.write_text(yaml.safe_dump({"tenants": list(tenants)}))
        gateway = start(processes, "gateway", *addresses, "--tenants", str(file))
        processes.wait_ready(gateway)
        yield Running(verifier, drafters, gateway)


def start(processes: Processes, module: str, *options: str, num_threads: int = 1, cores: str = "") -> ServiceProcess:
    """On ports of its own, without waiting for it."""
    pinned = ["taskset", "-c", cores] if cores else []
    command = [*pinned, sys.executable, "-m", module, *OWN, *options]
    return processes.start(module, command, service_environment(num_threads))


def tenant(name: str, **policy: Any) -> dict[str, Any]:
    """Whose API key is its name."""
    return {"name": name, "key_sha256": [hashlib.sha256(name.encode()).hexdigest()], **policy}


def verifier_options(services: Services) -> list[str]:
    options = ["--model", str(services.model), "--device", services.device, "--dtype", services.dtype]
    options += ["--max-num-seqs", str(services.max_num_seqs), "--kv-memory-mib", str(services.kv_memory_mib)]
    options += ["--num-threads", str(services.num_threads), "--max-model-len", str(services.max_model_len)]
    options += ["--no-ngram-fallback"]
    options += ["--tensor-parallel-size", str(services.tensor_parallel_size)]
    head = next((drafter.model for drafter in services.drafters if drafter.proposer == "eagle3"), None)
    options += ["--features", str(head)] if head is not None else []
    options += ["--trace", str(services.trace)] if services.trace is not None else []
    return options + (["--widen", services.widen] if services.widen else [])


def drafter_options(services: Services, drafter: Drafter) -> list[str]:
    options = ["--model", str(drafter.model), "--device", drafter.device, "--dtype", services.dtype]
    options += ["--target-model", str(services.model), "--proposer", drafter.proposer]
    options += ["--num-threads", str(drafter.num_threads), "--max-model-len", str(services.max_model_len)]
    options += ["--max-num-seqs", str(services.max_num_seqs), "--kv-memory-mib", str(drafter.kv_memory_mib)]
    return [*options, *drafter.options]


def _separate(processes: Processes, services: Services) -> tuple[ServiceProcess, dict[str, ServiceProcess]]:
    verifier = start(processes, "verifier_svc", *verifier_options(services), num_threads=services.num_threads)
    drafters = {
        drafter.proposer: start(
            processes,
            "drafter_svc",
            *drafter_options(services, drafter),
            num_threads=drafter.num_threads,
            cores=drafter.cores,
        )
        for drafter in services.drafters
    }
    return verifier, drafters


def _one_process(processes: Processes, services: Services) -> tuple[ServiceProcess, dict[str, ServiceProcess]]:
    (drafter,) = services.drafters
    words = [*verifier_options(services), BETWEEN, *OWN, *drafter_options(services, drafter)]
    both = start(processes, "launcher.host", *words, num_threads=services.num_threads)
    return both, {drafter.proposer: both}
