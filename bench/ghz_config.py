"""Load as ghz's configuration files describe it: whom to ask what, and how often. Knows descriptors; asks nobody."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from google.protobuf import descriptor_pool, json_format, message_factory
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message

import gateway.grpc_services  # noqa: F401 -- every message that a configuration may name

_KNOWN: Final = frozenset(
    {
        "host",
        "insecure",
        "proto",
        "import-paths",
        "call",
        "data",
        "metadata",
        "concurrency",
        "total",
        "timeout",
        "async",
    }
    | {"load-schedule", "load-start", "load-end", "load-step", "load-step-duration", "load-max-duration"}
)
_UNITS: Final = {"ms": 1e-3, "s": 1.0, "m": 60.0}
REQUEST_NUMBER: Final = "{{.RequestNumber}}"


@dataclass(frozen=True, slots=True)
class Step:
    """So many requests a second, for so long."""

    rate: float
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadConfig:
    """Raises ValueError naming file, field and value."""

    host: str
    method: MethodDescriptor
    data: str  # JSON of the request, with marks for what differs
    total: int
    concurrency: int
    timeout: float  # seconds, of one request
    metadata: tuple[tuple[str, str], ...]
    steps: tuple[Step, ...]  # none: as fast as answers come

    def request(self, number: int) -> Message:
        text = self.data.replace(REQUEST_NUMBER, str(number))
        return json_format.Parse(text, message_factory.GetMessageClass(self.method.input_type)())

    @property
    def path(self) -> str:
        return f"/{self.method.containing_service.full_name}/{self.method.name}"


def load_config(file: Path) -> LoadConfig:
    try:
        fields = json.loads(file.read_text())
        return _config(fields)
    except (OSError, KeyError, ValueError, json_format.ParseError) as error:
        raise ValueError(f"{file}: {type(error).__name__}: {error}") from error


def _config(fields: Mapping[str, Any]) -> LoadConfig:
    if unknown := sorted(fields.keys() - _KNOWN):
        raise ValueError(f"{unknown[0]!r} is no setting that is known here; known are {', '.join(sorted(_KNOWN))}")
    found = LoadConfig(
        host=fields["host"],
        method=descriptor_pool.Default().FindMethodByName(fields["call"].replace("/", ".")),
        data=json.dumps(fields["data"]),
        total=fields["total"],
        concurrency=fields["concurrency"],
        timeout=seconds(fields["timeout"]),
        metadata=tuple(fields.get("metadata", {}).items()),
        steps=tuple(_steps(fields)),
    )
    found.request(0)  # names what is no field of the message
    return found


def _steps(fields: Mapping[str, Any]) -> Iterator[Step]:
    if fields.get("load-schedule", "const") == "const":
        return
    if fields["load-schedule"] != "step":
        raise ValueError(f"load-schedule is {fields['load-schedule']!r}; it must be const or step")
    duration = seconds(fields["load-step-duration"])
    left = seconds(fields["load-max-duration"])
    for rate in range(fields["load-start"], fields["load-end"] + 1, fields["load-step"]):
        if left > 0:
            yield Step(rate, min(duration, left))
        left -= duration


def seconds(duration: str) -> float:
    """Of a duration as ghz writes it, such as 500ms, 10s or 2m."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m)", duration)
    if match is None:
        raise ValueError(f"duration {duration!r} is none; it must be a number with ms, s or m")
    return float(match[1]) * _UNITS[match[2]]
