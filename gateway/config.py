"""What a gateway needs to know before it starts. Knows addresses and bounds; tenants are in tenants.py."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

DEFAULT_LISTEN = "127.0.0.1:50050"


@dataclass(frozen=True, kw_only=True, slots=True)
class GatewayConfig:
    """Raises ValueError naming field and value."""

    listen: str = DEFAULT_LISTEN  # host:port, port 0 = any free one
    verifiers: tuple[str, ...]  # host:port each
    drafters: tuple[str, ...] = ()  # host:port each
    tenants: Path | None = None  # None: one anonymous tenant
    recovery_seconds: float = 3.0  # how long a sequence waits for a verifier to come back
    max_unsent_tokens: int = 1024  # a client that lags further behind is cancelled

    def __post_init__(self) -> None:
        if not self.verifiers:
            raise ValueError("verifiers is empty; give at least one host:port")
        for name in ("verifiers", "drafters"):
            for address in getattr(self, name):
                _check_address(name, address)
        if self.recovery_seconds < 0:
            raise ValueError(f"recovery_seconds is {self.recovery_seconds}; it must be >= 0")
        if self.max_unsent_tokens < 1:
            raise ValueError(f"max_unsent_tokens is {self.max_unsent_tokens}; it must be >= 1")


def _check_address(name: str, address: str) -> None:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 1 <= int(port) <= 65535:
        raise ValueError(f"{name} holds {address!r}; each must be host:port with a port in 1..65535")
