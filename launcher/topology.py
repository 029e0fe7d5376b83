"""What runs where: verifiers, drafters and their gateway, as one description. Knows no file, no flag and no process."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from os import cpu_count
from pathlib import Path
from typing import Final

from gateway.policy.tenants import DRAFT_MODEL, EAGLE3, PARD
from launcher import rules
from launcher.rules import MAX_PORT, Rule
from slipstream.config import DTYPES
from slipstream.wire.tls import ClientTls, ServerTls

if sys.platform == "linux":
    from os import sched_getaffinity

LOOPBACK: Final = "127.0.0.1:0"
SEPARATE: Final = "separate"  # a process for each service
ONE_PROCESS: Final = "one_process"  # one for each verifier and its drafter
PLACEMENTS: Final = (SEPARATE, ONE_PROCESS)
MAX_COUNT: Final = 1 << 20  # of anything that is counted here; a larger number is a slip

_BOTH_RULES: Final[dict[str, Rule]] = {
    "model": rules.existing_path(optional=True),
    "listen": rules.address(),
    "metrics": rules.address(empty="none"),
    "replicas": rules.whole(1, 64),
    "devices": rules.list_of(rules.device(), least=1),
    "dtype": rules.one_of(DTYPES),
    "threads": rules.whole(0, 1024, "what the others leave"),
    "kv_memory": rules.memory(),
    "max_model_len": rules.whole(0, MAX_COUNT, "what the model has"),
    "max_num_seqs": rules.whole(1, MAX_COUNT),
    "max_num_batched_tokens": rules.whole(1, MAX_COUNT),
    "otlp_endpoint": rules.collector(),
    "log_json": rules.boolean(),
}
VERIFIER_RULES: Final[dict[str, Rule]] = _BOTH_RULES | {
    "name": rules.text(),
    "features": rules.existing_path(optional=True),
    "tensor_parallel_size": rules.whole(1, 64),
}
DRAFTER_RULES: Final[dict[str, Rule]] = _BOTH_RULES | {
    "target_model": rules.existing_path(optional=True),
    "proposer": rules.one_of((DRAFT_MODEL, PARD, EAGLE3)),
    "max_branches": rules.whole(0, 64),
    "stop_below": rules.share(),
    "adapters_dir": rules.existing_path(optional=True),
    "adapters": rules.list_of(rules.text()),
    "max_adapters": rules.whole(1, 1024),
}
GATEWAY_RULES: Final[dict[str, Rule]] = {
    "listen": rules.address(),
    "http": rules.address(empty="none"),
    "watch_key_sha256": rules.key_hash(),
    "metrics": rules.address(empty="none"),
    "tenants": rules.existing_path(optional=True),
    "verifiers": rules.list_of(rules.peer()),
    "drafters": rules.list_of(rules.peer()),
    "tritonserver": rules.address(empty="none"),
    "tritonserver_model": rules.text(),
    "tritonserver_ca": rules.existing_path(optional=True),
    "recovery_seconds": rules.seconds(0, 3600),
    "max_running": rules.whole(1, MAX_COUNT),
    "max_queued": rules.whole(0, MAX_COUNT),
    "max_queued_per_tenant": rules.whole(0, MAX_COUNT),
    "max_queue_seconds": rules.seconds(0, 3600),
    "otlp_endpoint": rules.collector(),
    "log_json": rules.boolean(),
}
TLS_RULES: Final[dict[str, Rule]] = {
    "ca": rules.existing_path(optional=False),
    "certificate": rules.existing_path(optional=False),
    "key": rules.existing_path(optional=False),
    "client_ca": rules.existing_path(optional=True),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelService:
    """One verifier or drafter and its replicas. Raises ValueError naming field, value and range."""

    model: Path | None = None  # folder or .gguf file; None: the default model
    listen: str = LOOPBACK  # of the first replica; the others take the ports after it, or any if it is 0
    metrics: str = LOOPBACK  # where Prometheus finds the first replica's, the others as with `listen`; empty = none
    replicas: int = 1
    devices: tuple[str, ...] = ("cpu",)  # one for all replicas, or one for each
    dtype: str = "bfloat16"
    threads: int = 0  # of each replica; 0: a drafter takes one, verifiers share what is left
    kv_memory: str = "512MiB"
    max_model_len: int = 0  # positions; 0 = what the model has
    max_num_seqs: int = 64
    max_num_batched_tokens: int = 512  # of one step
    tensor_parallel_size: int = 1  # of a verifier: processes of which each holds a part of the model
    otlp_endpoint: str = ""  # of the collector that gets its traces; empty = none
    log_json: bool = False
    name: str = ""  # of a verifier's model, for clients; empty = that of its folder
    features: Path | None = None  # of a verifier: the EAGLE-3 head whose drafters get features from it; None = none
    target_model: Path | None = None  # of a drafter; None = the first verifier's model
    proposer: str = DRAFT_MODEL  # how a drafter drafts
    max_branches: int = 64  # of a drafter: outcomes drafted for ahead of a pass; 0 = takes turns with the verifier
    stop_below: float = 0.0  # of a drafter: ends a path that is less likely than this to stand; 0 = never
    adapters_dir: Path | None = None  # of a drafter: where LoRA adapters may be loaded from; None = nowhere
    adapters: tuple[str, ...] = ()  # folders there that are loaded at the start, each under its own name
    max_adapters: int = 4  # loaded at one time

    def __post_init__(self) -> None:
        rules.require(self, VERIFIER_RULES | DRAFTER_RULES)
        if len(self.devices) not in (1, self.replicas):
            raise ValueError(f"devices has {len(self.devices)} entries; it must have 1 or {self.replicas}, as replicas")
        if self.adapters and self.adapters_dir is None:
            raise ValueError(f"adapters is {list(self.adapters)}; give adapters_dir, where they are")
        for name, address in (("listen", self.listen), ("metrics", self.metrics)):
            if rules.port_of(address) + self.replicas - 1 > MAX_PORT:
                raise ValueError(f"{name} is {address!r}; the port must leave room for {self.replicas} replicas")

    def listen_of(self, replica: int) -> str:
        return rules.moved(self.listen, replica)

    def metrics_of(self, replica: int) -> str:
        return rules.moved(self.metrics, replica)

    def device_of(self, replica: int) -> str:
        return self.devices[replica % len(self.devices)]


@dataclass(frozen=True, kw_only=True, slots=True)
class GatewayService:
    """Raises ValueError naming field, value and range."""

    listen: str = LOOPBACK
    http: str = LOOPBACK  # of the OpenAI-compatible API; empty = not served
    watch_key_sha256: str = ""  # of the key with which an operator may watch requests at `http`; empty = nobody may
    metrics: str = LOOPBACK  # where Prometheus finds them; empty = none
    tenants: Path | None = None  # None: everyone may call
    verifiers: tuple[str, ...] = ()  # those that run elsewhere: host:port, or dns:///name:port
    drafters: tuple[str, ...] = ()
    tritonserver: str = ""  # host:port of an NVIDIA Triton Inference Server whose model may draft; empty = none
    tritonserver_model: str = ""  # the name of that model
    tritonserver_ca: Path | None = None  # PEM; signs that server's certificate; None: it speaks plaintext
    recovery_seconds: float = 30.0  # a running request waits so long for a verifier: time enough to start it again
    max_running: int = 256  # requests at one time
    max_queued: int = 256  # requests that wait for a place
    max_queued_per_tenant: int = 128  # of them
    max_queue_seconds: float = 30.0  # longest wait of one
    otlp_endpoint: str = ""  # of the collector that gets its traces; empty = none
    log_json: bool = False

    def __post_init__(self) -> None:
        rules.require(self, GATEWAY_RULES)
        if bool(self.tritonserver) != bool(self.tritonserver_model):
            raise ValueError(
                f"tritonserver is {self.tritonserver!r} and tritonserver_model {self.tritonserver_model!r}; "
                "give both or neither"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class TlsFiles:
    """One certificate for all services, by which they also know each other. Raises ValueError naming the file."""

    ca: Path  # PEM; signs `certificate`, and those of services that run elsewhere
    certificate: Path  # PEM; names this machine, localhost or 127.0.0.1 as it is called
    key: Path  # PEM
    client_ca: Path | None = None  # PEM; the gateway serves only who has a certificate of it; None: anyone

    def __post_init__(self) -> None:
        rules.require(self, TLS_RULES)
        self.as_client()
        ServerTls(certificate=self.certificate, key=self.key, client_ca=self.client_ca)

    def as_client(self) -> ClientTls:
        return ClientTls(ca=self.ca, certificate=self.certificate, key=self.key)


@dataclass(frozen=True, kw_only=True, slots=True)
class Topology:
    """All that one `slipstream up` runs. Raises ValueError if its parts do not fit together."""

    verifiers: tuple[ModelService, ...] = ()
    drafters: tuple[ModelService, ...] = ()
    gateway: GatewayService = GatewayService()
    tls: TlsFiles | None = None  # None: plaintext between all parts, and to clients
    placement: str = SEPARATE  # or "one_process": each verifier shares one with its drafter, best if they share a GPU

    def __post_init__(self) -> None:
        rules.require(self, {"placement": rules.one_of(PLACEMENTS)})
        if not self.verifiers and not self.gateway.verifiers:
            raise ValueError("verifiers is empty; give at least one to run here, or one elsewhere in gateway.verifiers")
        if any(drafter.model is None for drafter in self.drafters):
            raise ValueError("drafters without `model`; give each the folder of its draft model")
        if self.placement == ONE_PROCESS:
            self._require_pairs()
        for address, count in Counter(self._fixed_addresses()).items():
            if count > 1:
                raise ValueError(
                    f"{address!r} is given {count} times as an address to listen on; each is for one purpose"
                )

    def _require_pairs(self) -> None:
        counts = [sum(service.replicas for service in kind) for kind in (self.verifiers, self.drafters)]
        if counts[0] != counts[1]:
            raise ValueError(
                f"placement is {ONE_PROCESS} with {counts[0]} verifiers and {counts[1]} drafters; give as many of each"
            )

    def _fixed_addresses(self) -> list[str]:
        alone = (
            self._all if self.placement == SEPARATE else self.verifiers
        )  # a drafter inside another process has no port
        listens = [one.listen_of(replica) for one in alone for replica in range(one.replicas)]
        listens += [one.metrics_of(replica) for one in self._all for replica in range(one.replicas)]
        gateway = (self.gateway.listen, self.gateway.http, self.gateway.metrics)
        return [listen for listen in (*listens, *gateway) if rules.port_of(listen) > 0]

    @property
    def client_tls(self) -> ClientTls | None:
        """How its services are called."""
        return None if self.tls is None else self.tls.as_client()

    def threads_of(self, service: ModelService) -> int:
        """Of each replica. A verifier takes its share of the cores that nobody else has asked for."""
        if service.threads:
            return service.threads
        if not any(service is verifier for verifier in self.verifiers):  # a drafter may be given the same values
            return 1
        asked = sum(verifier.threads * verifier.replicas for verifier in self.verifiers)
        asked += sum(max(1, drafter.threads) * drafter.replicas for drafter in self.drafters)
        sharing = sum(other.replicas for other in self.verifiers if not other.threads)
        return max(1, (num_cores() - asked) // sharing)

    @property
    def _all(self) -> tuple[ModelService, ...]:
        return (*self.verifiers, *self.drafters)


def num_cores() -> int:
    """Those this process may use."""
    return len(sched_getaffinity(0)) if sys.platform == "linux" else cpu_count() or 1
