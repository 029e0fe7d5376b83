"""Where `up` writes down who runs where, so that `status` finds services on ports that nobody chose. Knows one file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from launcher.stack import Service, Stack


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    """A service, and where it is asked."""

    name: str
    address: str
    metrics: str = ""  # host:port; empty = unknown
    kind: str = ""  # verifier, drafter, gateway; empty: whichever answers


def path_of(folder: Path, gateway: str) -> Path:
    """Of the stack whose gateway is reached at `gateway`, host:port on this machine."""
    return folder / f"{gateway.replace(':', '_').replace('/', '_')}.json"


@contextmanager
def written(folder: Path, stack: Stack) -> Iterator[None]:
    """There for as long as the block lasts. A folder that cannot be written costs `status` its list, nothing else."""
    path = path_of(folder, stack.gateway)
    part = path.with_suffix(f".{os.getpid()}")
    services = [listed for service in stack.services for listed in _listed(service)]
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps({"services": [asdict(service) for service in services]}))
        part.replace(path)
    try:
        yield
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _listed(service: Service) -> Iterator[Listed]:
    """A drafter in a verifier's process is listed for itself."""
    spec = service.spec
    yield Listed(name=spec.name, address=service.address, metrics=spec.metrics, kind=spec.kind)
    if spec.drafter_options:
        name = spec.name.replace(spec.kind, "drafter")
        yield Listed(name=name, address=service.address, metrics=spec.drafter_metrics, kind="drafter")


def read(folder: Path, gateway: str) -> list[Listed]:
    """The services behind a gateway; none if it was not started by `up` on this machine."""
    try:
        return [Listed(**service) for service in json.loads(path_of(folder, gateway).read_text())["services"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []
