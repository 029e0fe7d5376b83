"""Verifier, drafters and a gateway as real processes for a measurement. Knows their command lines; measures nothing."""

from __future__ import annotations

import hashlib
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from launcher.processes import ProcessConfig, Processes, ServiceProcess
from launcher.stack import Stack, single_machine, start_stack
from slipstream.config import service_environment

START_SECONDS = 300.0  # a large model and its graphs


@dataclass(frozen=True, kw_only=True, slots=True)
class Drafter:
    model: Path
    proposer: str
    device: str = "cpu"


@dataclass(frozen=True, kw_only=True, slots=True)
class Services:
    """What is started."""

    model: Path
    device: str = "cpu"
    dtype: str = "bfloat16"
    widen: str = ""
    num_threads: int = 1
    max_num_seqs: int = 64
    kv_memory_mib: int = 512
    drafters: tuple[Drafter, ...] = ()

    @property
    def overlaps(self) -> bool:
        """Whether verifier and drafters compute at one time: on devices, not on the same cores."""
        return all(drafter.device != self.device for drafter in self.drafters)


@dataclass(frozen=True, slots=True)
class Running:
    verifier: ServiceProcess
    drafters: dict[str, ServiceProcess]  # by proposer
    gateway: ServiceProcess


@contextmanager
def running(services: Services, tenants: Sequence[dict[str, Any]]) -> Iterator[Running]:
    """All of them, until the block ends. Raises ServiceFailed."""
    config = ProcessConfig(start_seconds=START_SECONDS)
    with tempfile.TemporaryDirectory() as folder, Processes(config) as processes:
        head = next((drafter.model for drafter in services.drafters if drafter.proposer == "eagle3"), None)
        features = ("--features", str(head)) if head is not None else ()
        verifier = start(processes, "verifier_svc", *_verifier_options(services), *features)
        loading = {
            d.proposer: start(processes, "drafter_svc", *_drafter_options(services, d)) for d in services.drafters
        }
        addresses = ["--verifier", processes.wait_ready(verifier)]
        for service in loading.values():
            addresses += ["--drafter", processes.wait_ready(service)]
        file = tenants_file(Path(folder), tenants)
        gateway = start(processes, "gateway", *addresses, "--tenants", str(file))
        processes.wait_ready(gateway)
        yield Running(verifier, loading, gateway)


@contextmanager
def running_on_cores(
    model: Path, draft_model: Path | None, tenants: Sequence[dict[str, Any]], num_threads: int = 0
) -> Iterator[Stack]:
    """All of them on this machine's cores, as `slipstream up` runs them, until the block ends.

    `num_threads`: of the verifier; 0: one for each core. Raises ServiceFailed.
    """
    with tempfile.TemporaryDirectory() as folder, Processes(ProcessConfig(start_seconds=START_SECONDS)) as processes:
        topology = single_machine(model, draft_model, tenants=tenants_file(Path(folder), tenants))
        if num_threads:
            topology = replace(topology, verifiers=(replace(topology.verifiers[0], threads=num_threads),))
        yield start_stack(processes, topology)


def tenants_file(folder: Path, tenants: Sequence[dict[str, Any]]) -> Path:
    file = folder / "tenants.yaml"
    file.write_text(yaml.safe_dump({"tenants": list(tenants)}))
    return file


def start(processes: Processes, module: str, *options: str, num_threads: int = 1) -> ServiceProcess:
    """On ports of its own, without waiting for it."""
    own = ("--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--log-level", "warning")
    return processes.start(module, [sys.executable, "-m", module, *own, *options], service_environment(num_threads))


def tenant(name: str, **policy: Any) -> dict[str, Any]:
    """Whose API key is its name."""
    return {"name": name, "key_sha256": [hashlib.sha256(name.encode()).hexdigest()], **policy}


def _verifier_options(services: Services) -> list[str]:
    options = ["--model", str(services.model), "--device", services.device, "--dtype", services.dtype]
    options += ["--max-num-seqs", str(services.max_num_seqs), "--kv-memory-mib", str(services.kv_memory_mib)]
    options += ["--num-threads", str(services.num_threads), "--no-ngram-fallback"]
    return options + (["--widen", services.widen] if services.widen else [])


def _drafter_options(services: Services, drafter: Drafter) -> list[str]:
    options = ["--model", str(drafter.model), "--device", drafter.device, "--dtype", services.dtype]
    options += ["--target-model", str(services.model), "--proposer", drafter.proposer]
    return [*options, "--max-num-seqs", str(services.max_num_seqs)]
