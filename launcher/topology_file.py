"""Reads slipstream.yaml into a topology, telling everything that is wrong with it at once. Knows YAML; runs nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Final, TypeVar

import yaml

from gateway.policy.tenants import load_tenants
from launcher import rules
from launcher.rules import Rule
from launcher.topology import (
    DRAFTER_RULES,
    GATEWAY_RULES,
    SEPARATE,
    TLS_RULES,
    VERIFIER_RULES,
    GatewayService,
    ModelService,
    TlsFiles,
    Topology,
)
from slipstream.errors import quoted

DEFAULT_FILE: Final = Path("slipstream.yaml")
PATHS: Final = frozenset(
    {
        "model",
        "features",
        "target_model",
        "adapters_dir",
        "tenants",
        "tritonserver_ca",
        "ca",
        "certificate",
        "key",
        "client_ca",
    }
)  # relative ones start at the file's folder

PartT = TypeVar("PartT", ModelService, GatewayService, TlsFiles)


class ConfigError(ValueError):
    """One line for each problem: file, field, value, range."""


def load_topology(file: Path) -> Topology:
    """Raises ConfigError. The tenants file is read too, so that its mistakes are reported before anything runs."""
    reader = _Reader(file)
    topology = reader.topology()
    if topology is None or reader.problems:
        raise ConfigError("\n".join(f"{file}: {text}" for text in reader.problems))
    if topology.gateway.tenants is not None:
        load_tenants(topology.gateway.tenants)
    return topology


class _Reader:
    """Goes on after a problem, to find the next."""

    def __init__(self, file: Path) -> None:
        self.problems: list[str] = []
        self._file = file

    def topology(self) -> Topology | None:
        sections = self._sections()
        verifiers = self._services("verifiers", VERIFIER_RULES, sections.get("verifiers"))
        drafters = self._services("drafters", DRAFTER_RULES, sections.get("drafters"))
        gateway = self._part(GatewayService, GATEWAY_RULES, "gateway", sections.get("gateway") or {})
        files, placement = sections.get("tls"), sections.get("placement", SEPARATE)
        tls = None if files is None else self._part(TlsFiles, TLS_RULES, "tls", files)
        if self.problems or gateway is None:
            return None
        try:
            return Topology(verifiers=verifiers, drafters=drafters, gateway=gateway, tls=tls, placement=placement)
        except ValueError as error:
            self.problems.append(str(error))
            return None

    def _sections(self) -> Mapping[str, Any]:
        try:
            document = yaml.safe_load(self._file.read_text())
        except OSError as error:
            raise ConfigError(f"{self._file}: cannot be read: {error.strerror}") from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self._file}: is not YAML: {' '.join(str(error).split())}") from error
        known = [field.name for field in fields(Topology)]
        if not isinstance(document, dict):
            raise ConfigError(f"{self._file}: must hold {', '.join(f'`{name}:`' for name in known)}")
        self._refuse_unknown("", document, known)
        return document

    def _services(self, name: str, allowed: Mapping[str, Rule], entries: Any) -> tuple[ModelService, ...]:
        if not isinstance(entries or [], list):
            self.problems.append(f"{name} is {quoted(entries)}; it must be a list, one entry for each kind of {name}")
            return ()
        numbered = enumerate(entries or [])
        parts = [self._part(ModelService, allowed, f"{name}[{index}]", entry) for index, entry in numbered]
        return tuple(part for part in parts if part is not None)

    def _part(self, kind: type[PartT], allowed: Mapping[str, Rule], where: str, entry: Any) -> PartT | None:
        if not isinstance(entry, dict):
            self.problems.append(f"{where} is {quoted(entry)}; it must hold fields, known are {', '.join(allowed)}")
            return None
        values = {name: self._converted(name, value) for name, value in entry.items()}
        found = [rules.problem(f"{where}.{name}", values[name], allowed[name]) for name in values if name in allowed]
        before = len(self.problems)
        self.problems += filter(None, found)
        self._refuse_unknown(f"{where}.", values, allowed)
        missing = [field.name for field in fields(kind) if field.default is MISSING and field.name not in values]
        self.problems += [f"{where}.{name} is missing; it must be {allowed[name].allowed}" for name in missing]
        if len(self.problems) > before:
            return None
        try:
            return kind(**values)
        except ValueError as error:
            self.problems.append(f"{where}.{error}")
            return None

    def _converted(self, name: Any, value: Any) -> Any:
        if name in PATHS and isinstance(value, str) and value:
            return self._file.parent / Path(value).expanduser()
        return tuple(value) if isinstance(value, list) else value

    def _refuse_unknown(self, where: str, given: Mapping[Any, Any], known: Any) -> None:
        self.problems += [
            f"{where}{name} is no field; known are {', '.join(known)}" for name in given if name not in known
        ]


def describe(topology: Topology) -> dict[str, Any]:
    """The topology with every default filled in, as plain values."""
    return {
        "verifiers": [_plain(service, VERIFIER_RULES) for service in topology.verifiers],
        "drafters": [_plain(service, DRAFTER_RULES) for service in topology.drafters],
        "gateway": _plain(topology.gateway, GATEWAY_RULES),
        "placement": topology.placement,
        "tls": None if topology.tls is None else _plain(topology.tls, TLS_RULES),
    }


def _plain(part: ModelService | GatewayService | TlsFiles, names: Iterable[str]) -> dict[str, Any]:
    return {name: _value(getattr(part, name)) for name in names}


def _value(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    return list(value) if isinstance(value, tuple) else value
