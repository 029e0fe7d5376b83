"""What processes hold, and which are left. Knows /proc; no service."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Held:
    """By one process."""

    files: int
    threads: int
    resident_kib: int


def held(pid: int) -> Held:
    process = Path(f"/proc/{pid}")
    status = dict(line.split(":\t", 1) for line in (process / "status").read_text().splitlines() if ":\t" in line)
    return Held(
        files=len(list((process / "fd").iterdir())),
        threads=int(status["Threads"]),
        resident_kib=int(status["VmRSS"].split()[0]),
    )


def marked(mark: str) -> list[int]:
    """Processes in whose environment the text stands: all that come of one started with it, wherever they went."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal() and _has(entry, mark)]


def none_marked(mark: str, seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while marked(mark):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def _has(process: Path, mark: str) -> bool:
    try:
        return mark.encode() in (process / "environ").read_bytes()
    except OSError:
        return False  # it has ended meanwhile
