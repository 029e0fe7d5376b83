"""Reloads tenants.yaml when it changes or when asked to. Knows the file and who wants the policies; no request.

It looks at the file's time and size once a second: that works with every file system and with files that are replaced
through links, as Kubernetes does, and costs one system call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

from gateway.policy.audit import log_policies, log_rejected
from gateway.policy.tenants import Tenants, load_tenants
from slipstream.metrics.instruments import Counter

LOOK_SECONDS: Final = 1.0
ACCEPTED, REJECTED = "accepted", "rejected"

Stamp = tuple[int, int, int]  # of a file: time, size, inode


class PolicyWatch:
    """What is in force when it is made came from the same file."""

    def __init__(self, file: Path, in_force: Tenants, take_up: Callable[[Tenants], None]) -> None:
        self.reloads = Counter("slipstream_policy_reloads", "Times that tenants.yaml was read again.", ("outcome",))
        self._file = file
        self._in_force = in_force
        self._take_up = take_up
        self._read_at = self._seen = _stamp(file)

    async def run(self, look_seconds: float = LOOK_SECONDS) -> NoReturn:
        while True:
            await asyncio.sleep(look_seconds)
            self.look()

    def look(self) -> None:
        """Reads the file if it is another one than before, once it has stayed the same for two looks."""
        seen, self._seen = self._seen, _stamp(self._file)
        if self._seen == seen and self._seen != self._read_at:
            self.reload()

    def reload(self) -> None:
        """A file that cannot be used leaves in force what is, and says why."""
        self._read_at = self._seen = _stamp(self._file)
        try:
            tenants = load_tenants(self._file)
        except ValueError as error:
            self.reloads.add(1, REJECTED)
            log_rejected(str(self._file), error)
            return
        self.reloads.add(1, ACCEPTED)
        log_policies(str(self._file), tenants, self._in_force)
        self._in_force = tenants
        self._take_up(tenants)


def _stamp(file: Path) -> Stamp:
    try:
        found = file.stat()
    except OSError:
        return 0, 0, 0
    return found.st_mtime_ns, found.st_size, found.st_ino
