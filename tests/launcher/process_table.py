"""Whether a process is still there, for the tests beside it."""

from __future__ import annotations

import time
from pathlib import Path


def gone(pid: int, seconds: float = 5.0) -> bool:
    """Waits for it to go; a zombie is gone too, nobody has asked for its exit code yet."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if state(pid) in {"", "Z"}:
            return True
        time.sleep(0.02)
    return False


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
