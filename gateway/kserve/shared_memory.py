"""Regions of system shared memory that callers on this machine registered, to be read. Knows files; knows no tensor.

They are read by file descriptor, never mapped: a caller that shortens its region must not bring this process down.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from slipstream.errors import Exhausted, InvalidRequest, quoted

FOLDER: Final = Path("/dev/shm")
MAX_REGIONS: Final = 64  # of one tenant
MAX_READ_BYTES: Final = 16 << 20  # more than the longest prompt

_KEY: Final = re.compile(r"/?([A-Za-z0-9_][A-Za-z0-9_.-]{0,254})")
_LOCAL_PEERS: Final = ("unix:", "ipv4:127.", "ipv6:%5B::1%5D:", "ipv6:%5B::ffff:127.")


def check_local(peer: str) -> None:
    """`peer` as gRPC names it. Memory of this machine is no matter of callers elsewhere."""
    if not peer.startswith(_LOCAL_PEERS):
        raise InvalidRequest(f"shared memory is for callers on the gateway's machine, not for {peer}; send contents")


@dataclass(frozen=True, slots=True)
class Region:
    name: str
    key: str
    offset: int
    num_bytes: int


class SharedMemoryRegions:
    """Every tenant has its own names."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._regions: dict[str, dict[str, Region]] = {}  # by tenant and name

    def register(self, tenant: str, region: Region) -> None:
        """Raises InvalidRequest unless the region can be read as far as it claims to reach."""
        regions = self._regions.setdefault(tenant, {})
        if not region.name:
            raise InvalidRequest("name is empty; give the region a name")
        if region.name in regions:
            raise InvalidRequest(f"region {quoted(region.name)} is registered already; unregister it first")
        if len(regions) >= MAX_REGIONS:
            raise Exhausted(f"{len(regions)} regions are registered, the most that can be; unregister one first")
        with _opened(self._path(region.key)) as (_, size):
            if not 0 < region.num_bytes <= size - region.offset:
                raise InvalidRequest(
                    f"byte_size is {region.num_bytes} at offset {region.offset}; "
                    f"it must lie within the {size} bytes of {quoted(region.key)}"
                )
        regions[region.name] = region

    def unregister(self, tenant: str, name: str) -> None:
        """All of the tenant's if the name is empty; one that is not there is gone already."""
        if name:
            self._regions.get(tenant, {}).pop(name, None)
        else:
            self._regions.pop(tenant, None)

    def registered(self, tenant: str, name: str) -> list[Region]:
        """One, or all if the name is empty."""
        if not name:
            return list(self._regions.get(tenant, {}).values())
        return [self._find(tenant, name)]

    def read(self, tenant: str, name: str, offset: int, num_bytes: int) -> bytes:
        region = self._find(tenant, name)
        if not 0 < num_bytes <= min(MAX_READ_BYTES, region.num_bytes - offset) or offset < 0:
            raise InvalidRequest(
                f"shared_memory_byte_size is {num_bytes} at offset {offset}; it must lie within the "
                f"{region.num_bytes} bytes of region {quoted(name)} and be <= {MAX_READ_BYTES}"
            )
        with _opened(self._path(region.key)) as (descriptor, _):
            data = os.pread(descriptor, num_bytes, region.offset + offset)
        if len(data) < num_bytes:
            raise InvalidRequest(f"region {quoted(name)} has become shorter than it was registered; register it again")
        return data

    def _find(self, tenant: str, name: str) -> Region:
        found = self._regions.get(tenant, {}).get(name)
        if found is None:
            raise InvalidRequest(f"region {quoted(name)} is not registered; SystemSharedMemoryRegister does it")
        return found

    def _path(self, key: str) -> Path:
        match = _KEY.fullmatch(key)
        if match is None:
            raise InvalidRequest(f"key is {quoted(key)}; it must be the name of a region, of letters, digits and _ . -")
        return self._folder / match[1]


@contextmanager
def _opened(path: Path) -> Iterator[tuple[int, int]]:
    """A descriptor to read by, and the size. No link is followed, and no pipe waited for."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise InvalidRequest(f"key {quoted(path.name)} cannot be opened: {error.strerror}") from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise InvalidRequest(f"key {quoted(path.name)} is no shared memory")
        yield descriptor, found.st_size
    finally:
        os.close(descriptor)
