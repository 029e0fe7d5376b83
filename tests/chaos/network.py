"""A network inside this machine whose cables can be pulled: both ends then go on believing. Knows `ip`; no service."""

from __future__ import annotations

import os
import subprocess
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType

from tests.e2e.cluster import Place

SECONDS = 10.0  # for one command


class NotPermitted(Exception):
    """This machine does not let us have namespaces; says why."""


@dataclass(frozen=True, slots=True)
class Host:
    """A network namespace behind a cable."""

    place: Place
    cable: str  # its end at the switch


class Network:
    """A bridge, which this machine is connected to as `address`, and hosts. Leaving the context removes all of it."""

    def __init__(self) -> None:
        self._number = os.getpid() % 100_000  # interface names have at most 15 characters
        self._subnet = f"10.213.{self._number % 256}"
        self._bridge = f"sl{self._number}br"
        self._hosts: list[Host] = []
        self._undo = ExitStack()
        self.place = Place(f"{self._subnet}.1")

    def __enter__(self) -> Network:
        """Raises NotPermitted."""
        try:
            self._make("link", self._bridge, "type", "bridge")
            ip("addr", "add", f"{self.place.address}/24", "dev", self._bridge)
            ip("link", "set", self._bridge, "up")
        except NotPermitted:
            self._undo.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo.close()

    def host(self) -> Host:
        """One more, connected."""
        number = len(self._hosts) + 2
        namespace, address = f"sl{self._number}n{number}", f"{self._subnet}.{number}"
        host = Host(Place(address, ("ip", "netns", "exec", namespace)), f"sl{self._number}c{number}")
        self._hosts.append(host)
        self._make("netns", namespace)
        self._make("link", host.cable, "type", "veth", "peer", "name", "eth0", "netns", namespace)
        ip("-n", namespace, "addr", "add", f"{address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            ip("-n", namespace, "link", "set", device, "up")
        ip("link", "set", host.cable, "up")
        self.plug(host)
        return host

    def pull(self, host: Host) -> None:
        """From now on what either end sends is lost without a word; neither sees its link go down."""
        ip("link", "set", host.cable, "nomaster")

    def plug(self, host: Host) -> None:
        ip("link", "set", host.cable, "master", self._bridge)

    def _make(self, kind: str, name: str, *rest: str) -> None:
        ip(kind, "add", name, *rest)
        self._undo.callback(ip, kind, "del", name)


def ip(*arguments: str) -> None:
    try:
        subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=SECONDS)
    except FileNotFoundError as error:
        raise NotPermitted("`ip` of iproute2 is not installed") from error
    except subprocess.CalledProcessError as error:
        raise NotPermitted(f"`ip {' '.join(arguments)}` fails: {error.stderr.strip()}") from error
