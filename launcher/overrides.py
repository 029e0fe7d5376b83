"""What a command line changes in a topology. Knows which services each value concerns; reads nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from launcher.topology import ModelService, Topology


@dataclass(frozen=True, kw_only=True, slots=True)
class Overrides:
    """None leaves a value as it is."""

    dtype: str | None = None  # of verifiers and drafters
    max_num_seqs: int | None = None  # of verifiers and drafters
    threads: int | None = None  # of verifiers
    kv_memory: str | None = None  # of verifiers
    max_model_len: int | None = None  # of verifiers: a draft model may have fewer positions
    listen: str | None = None  # of the gateway
    http: str | None = None  # of the gateway
    tenants: Path | None = None  # of the gateway
    watch_key_sha256: str | None = None  # of the gateway
    otlp_endpoint: str | None = None  # of all services
    placement: str | None = None  # of verifiers and drafters

    def apply(self, topology: Topology) -> Topology:
        """Raises ValueError naming field, value and range."""
        both = {"dtype": self.dtype, "max_num_seqs": self.max_num_seqs, "otlp_endpoint": self.otlp_endpoint}
        own = {"threads": self.threads, "kv_memory": self.kv_memory, "max_model_len": self.max_model_len}
        gateway = {"listen": self.listen, "http": self.http, "tenants": self.tenants}
        gateway |= {"watch_key_sha256": self.watch_key_sha256, "otlp_endpoint": self.otlp_endpoint}
        return replace(
            topology,
            verifiers=_changed(topology.verifiers, both | own),
            drafters=_changed(topology.drafters, both),
            gateway=replace(topology.gateway, **_given(gateway)),
            **_given({"placement": self.placement}),
        )


def _changed(services: tuple[ModelService, ...], values: dict[str, Any]) -> tuple[ModelService, ...]:
    return tuple(replace(service, **_given(values)) for service in services)


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
