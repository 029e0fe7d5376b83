"""From a topology to running services: their command lines and order of start. Knows flags; speaks no gRPC."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from launcher.processes import Processes, ServiceProcess
from launcher.rules import mebibytes
from launcher.topology import LOOPBACK, ONE_PROCESS, GatewayService, ModelService, TlsFiles, Topology, num_cores
from slipstream.config import service_environment

BETWEEN = "+"  # in the command of a process that holds a verifier and a drafter: of which the options are
UNLIKELY = 0.35  # below it a drafted token costs more than it brings on a CPU (docs/performance.md)


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceSpec:
    """How one service is started, the first time and after each death."""

    kind: str  # verifier, drafter, gateway
    name: str  # the kind, numbered if there are several
    module: str
    listen: str  # port 0: any, until it has run once
    metrics: str  # likewise; empty = none
    options: tuple[str, ...]
    num_threads: int = 1
    http: str = ""  # of a gateway, likewise
    drafter_options: tuple[str, ...] = ()  # of the drafter in a verifier's process; empty = there is none
    drafter_metrics: str = ""  # as `metrics`

    @property
    def command(self) -> list[str]:
        addresses = ["--listen", self.listen, "--metrics-listen", self.metrics]
        addresses += ["--http-listen", self.http] if self.http else []
        beside = [BETWEEN, "--metrics-listen", self.drafter_metrics, *self.drafter_options]
        return [sys.executable, "-m", self.module, *addresses, *self.options, *(beside if self.drafter_options else ())]

    def holds(self, kind: str) -> bool:
        return kind == self.kind or (kind == "drafter" and bool(self.drafter_options))

    def start(self, processes: Processes) -> ServiceProcess:
        return processes.start(self.name, self.command, service_environment(self.num_threads))


@dataclass(frozen=True, slots=True)
class Service:
    """A service that has become ready; its specification names the very port it got."""

    spec: ServiceSpec
    process: ServiceProcess

    @property
    def address(self) -> str:
        return self.spec.listen


@dataclass(frozen=True, slots=True)
class Stack:
    services: tuple[Service, ...]  # in order of start, the gateway last

    def addresses(self, kind: str) -> list[str]:
        return [service.address for service in self.services if service.spec.holds(kind)]

    @property
    def gateway(self) -> str:
        return self.addresses("gateway")[0]


Started = Callable[[Service], None]


def single_machine(
    model: Path | None,
    draft_model: Path | None = None,
    *,
    tenants: Path | None = None,
    listen: str = LOOPBACK,
    http: str = LOOPBACK,
) -> Topology:
    """One verifier, a drafter if there is a draft model, and their gateway, on loopback and on the same cores.

    Sharing cores, verifier and drafter take turns: what is drafted ahead of a pass would slow that pass down.
    """
    gateway = GatewayService(listen=listen, http=http, tenants=tenants)
    if draft_model is None:
        return Topology(verifiers=(ModelService(model=model),), gateway=gateway)
    drafter = ModelService(model=draft_model, threads=1, max_branches=0, stop_below=UNLIKELY)
    return Topology(verifiers=(ModelService(model=model, threads=num_cores()),), drafters=(drafter,), gateway=gateway)


def start_stack(processes: Processes, topology: Topology, started: Started = lambda service: None) -> Stack:
    """Starts all, tells each when it is ready, and returns when the gateway answers. Stopping is the caller's."""
    specs = model_specs(topology)
    loading = [(spec, spec.start(processes)) for spec in specs]
    services = [_ready(processes, spec, process, started) for spec, process in loading]
    last = gateway_spec(topology, Stack(tuple(services)))
    return Stack((*services, _ready(processes, last, last.start(processes), started)))


def _ready(processes: Processes, spec: ServiceSpec, process: ServiceProcess, started: Started) -> Service:
    address = processes.wait_ready(process)
    metrics, http = process.metrics_address or spec.metrics, process.http_address or spec.http
    of_drafter = process.metrics_addresses.get("drafter", spec.drafter_metrics)
    known = replace(spec, listen=address, metrics=metrics, http=http, drafter_metrics=of_drafter)
    service = Service(known, process)
    started(service)
    return service


def model_specs(topology: Topology) -> list[ServiceSpec]:
    """Of all that holds a model."""
    verifiers, drafters = verifier_specs(topology), drafter_specs(topology)
    if topology.placement != ONE_PROCESS:
        return [*verifiers, *drafters]
    return [_together(verifier, drafter) for verifier, drafter in zip(verifiers, drafters, strict=True)]


def verifier_specs(topology: Topology) -> list[ServiceSpec]:
    return list(_numbered("verifier", "verifier_svc", topology, topology.verifiers))


def drafter_specs(topology: Topology) -> list[ServiceSpec]:
    return list(_numbered("drafter", "drafter_svc", topology, topology.drafters))


def gateway_spec(topology: Topology, stack: Stack) -> ServiceSpec:
    gateway = topology.gateway
    options = _repeated("--verifier", (*stack.addresses("verifier"), *gateway.verifiers))
    options += _repeated("--drafter", (*stack.addresses("drafter"), *gateway.drafters))
    if gateway.tritonserver:
        options += ["--tritonserver", gateway.tritonserver, "--tritonserver-model", gateway.tritonserver_model]
    if gateway.tritonserver_ca is not None:
        options += ["--tritonserver-ca", str(gateway.tritonserver_ca)]
    options += ["--recovery-seconds", str(gateway.recovery_seconds), "--max-running", str(gateway.max_running)]
    options += ["--max-queued", str(gateway.max_queued), "--max-queue-seconds", str(gateway.max_queue_seconds)]
    options += ["--max-queued-per-tenant", str(gateway.max_queued_per_tenant)]
    if (tls := topology.tls) is not None:
        options += _server_options(tls, tls.client_ca)
        options += ["--peer-ca", str(tls.ca), "--peer-cert", str(tls.certificate), "--peer-key", str(tls.key)]
    options += ["--log-json"] * gateway.log_json
    options += ["--otlp-endpoint", gateway.otlp_endpoint] if gateway.otlp_endpoint else []
    if gateway.watch_key_sha256:
        options += ["--watch-key-sha256", gateway.watch_key_sha256]
    if gateway.tenants is not None:
        options += ["--tenants", str(gateway.tenants)]
    return ServiceSpec(
        kind="gateway",
        name="gateway",
        module="gateway",
        listen=gateway.listen,
        metrics=gateway.metrics,
        http=gateway.http,
        options=tuple(options),
    )


def _numbered(kind: str, module: str, topology: Topology, services: tuple[ModelService, ...]) -> Iterator[ServiceSpec]:
    replicas = [(service, replica) for service in services for replica in range(service.replicas)]
    for number, (service, replica) in enumerate(replicas, start=1):
        yield ServiceSpec(
            kind=kind,
            name=kind if len(replicas) == 1 else f"{kind}{number}",
            module=module,
            listen=service.listen_of(replica),
            metrics=service.metrics_of(replica),
            options=tuple(_options(topology, service, service.device_of(replica))),
            num_threads=topology.threads_of(service),
        )


def _together(verifier: ServiceSpec, drafter: ServiceSpec) -> ServiceSpec:
    return replace(
        verifier,
        module="launcher.host",
        drafter_options=drafter.options,
        drafter_metrics=drafter.metrics,
        num_threads=max(verifier.num_threads, drafter.num_threads),
    )


def _options(topology: Topology, service: ModelService, device: str) -> list[str]:
    options = ["--model", str(service.model), "--device", device, "--dtype", service.dtype]
    options += ["--num-threads", str(topology.threads_of(service))]
    options += ["--kv-memory-mib", str(mebibytes(service.kv_memory)), "--max-model-len", str(service.max_model_len)]
    options += ["--max-num-seqs", str(service.max_num_seqs)]
    options += ["--max-num-batched-tokens", str(service.max_num_batched_tokens)]
    options += ["--log-json"] * service.log_json
    options += ["--otlp-endpoint", service.otlp_endpoint] if service.otlp_endpoint else []
    if topology.tls is not None:
        options += _server_options(topology.tls, topology.tls.ca)
    if service.name:
        options += ["--name", service.name]
    if service.features is not None:
        options += ["--features", str(service.features)]
    if service.tensor_parallel_size > 1:
        options += ["--tensor-parallel-size", str(service.tensor_parallel_size)]
    if service in topology.drafters:
        options += ["--proposer", service.proposer]
        options += ["--max-branches", str(service.max_branches), "--stop-below", str(service.stop_below)]
        options += _adapter_options(service)
    if service in topology.drafters and (target := _target_model(topology, service)) is not None:
        options += ["--target-model", str(target)]
    return options


def _adapter_options(drafter: ModelService) -> list[str]:
    if drafter.adapters_dir is None:
        return []
    named = [f"{name}={drafter.adapters_dir / name}" for name in drafter.adapters]
    options = ["--adapters-dir", str(drafter.adapters_dir), "--max-adapters", str(drafter.max_adapters)]
    return options + _repeated("--adapter", named)


def _server_options(tls: TlsFiles, client_ca: Path | None) -> list[str]:
    asked = [] if client_ca is None else ["--tls-client-ca", str(client_ca)]
    return ["--tls-cert", str(tls.certificate), "--tls-key", str(tls.key), *asked]


def _target_model(topology: Topology, drafter: ModelService) -> Path | None:
    """What a stored draft takes embedding and head from; a verifier elsewhere has its model elsewhere."""
    here = next((verifier.model for verifier in topology.verifiers), None)
    return drafter.target_model or here


def _repeated(flag: str, values: Iterable[str]) -> list[str]:
    return [word for value in values for word in (flag, value)]
