"""Where peers are: host:port as it stands, or a name in DNS behind which there may be several. Knows no link."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

_LOG = logging.getLogger(__name__)

DNS_PREFIX: Final = "dns:///"
MAX_PORT: Final = 65535

LookUp = Callable[[str, int], Awaitable[Sequence[str]]]  # host name, port -> IP addresses; raises OSError


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One peer."""

    address: str  # host:port
    server_name: str = ""  # what its certificate must name, if that is not the host; empty = it is


def check_target(field: str, target: str) -> None:
    """Raises ValueError unless it is host:port or dns:///name:port."""
    host, _, port = target.removeprefix(DNS_PREFIX).rpartition(":")
    if not host or "/" in host or not port.isdecimal() or not 1 <= int(port) <= MAX_PORT:
        raise ValueError(
            f"{field} holds {target!r}; each must be host:port, or {DNS_PREFIX}name:port for all that a name stands "
            f"for, with a port in 1..{MAX_PORT}"
        )


async def look_up(host: str, port: int) -> Sequence[str]:
    """The addresses that the system's resolver knows, in a fixed order."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return sorted({str(address[0]) for *_, address in found})


class AddressBook:
    """The present endpoints of some targets. A name that cannot be looked up now keeps those it had."""

    def __init__(self, targets: Sequence[str], look_up: LookUp = look_up) -> None:
        self._fixed = [Endpoint(target) for target in targets if not target.startswith(DNS_PREFIX)]
        self._names = [target.removeprefix(DNS_PREFIX) for target in targets if target.startswith(DNS_PREFIX)]
        self._look_up = look_up
        self._known: dict[str, list[Endpoint]] = {name: [] for name in self._names}
        self._trouble: dict[str, str] = {}

    @property
    def endpoints(self) -> list[Endpoint]:
        """As last looked up, each once."""
        return list(dict.fromkeys([*self._fixed, *(found for name in self._names for found in self._known[name])]))

    async def refresh(self) -> None:
        await asyncio.gather(*map(self._refresh, self._names))

    async def _refresh(self, name: str) -> None:
        host, _, port = name.rpartition(":")
        try:
            found = await self._look_up(host, int(port))
        except OSError as error:
            if self._trouble.get(name) != str(error):  # one line per trouble, not one per attempt
                self._trouble[name] = str(error)
                _LOG.warning("%s cannot be looked up: %s", name, error)
            return
        self._trouble.pop(name, None)
        self._known[name] = [Endpoint(_joined(address, port), server_name=host) for address in found]


def _joined(address: str, port: str) -> str:
    is_v6 = ipaddress.ip_address(address.partition("%")[0]).version == 6
    return f"[{address}]:{port}" if is_v6 else f"{address}:{port}"
