"""`slipstream up` as a process of its own, for tests. Knows its lines; no expectations."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tests.launcher.process_table import gone

LINE = re.compile(r"(\w+) +(\S+:\d+) +pid (\d+) +ready after [\d.]+ s(?:  (.*))?\n")
AGAIN = re.compile(r"(\w+) is ready again at (\S+:\d+), pid (\d+), after [\d.]+ s\n")


class Up:
    """Once it says that all is ready; `services` follows restarts."""

    def __init__(self, run_folder: Path, *arguments: str) -> None:
        anywhere = ("--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0")
        command = [sys.executable, "-m", "launcher", "up", *anywhere, *arguments]
        environment = os.environ | {"XDG_RUNTIME_DIR": str(run_folder), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        self.services: dict[str, tuple[str, int]] = {}
        self.descriptions: dict[str, str] = {}
        self.watch_address = ""
        self.told: list[str] = []
        self._pids: set[int] = set()
        self._reader = threading.Thread(target=self._read_errors, daemon=True)
        self._reader.start()
        self._read_start()

    @property
    def gateway(self) -> str:
        return self.services["gateway"][0]

    def end(self) -> tuple[int, str]:
        """Exit code, and what it printed since all was ready."""
        assert self.process.stdout is not None
        out = self.process.stdout.read()
        code = self.process.wait(30)
        self._reader.join(5)
        self.process.stdout.close()
        return code, out

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(30)
        self._reader.join(5)

    def all_gone(self) -> bool:
        return all(gone(pid) for pid in self._pids)

    def wait_for(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, self.told
            assert time.monotonic() < deadline, self.told
            time.sleep(0.02)

    def _read_start(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line == "Ctrl-C stops all\n":
                return
            if line.startswith("watch at "):
                self.watch_address = line.split()[-1]
            if match := LINE.fullmatch(line):
                self._note(match[1], match[2], int(match[3]))
                self.descriptions[match[1]] = match[4] or ""
        self.process.wait(30)
        self._reader.join(5)
        raise AssertionError(f"it ended early: {self.told}")

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.told.append(line)
            if match := AGAIN.fullmatch(line):
                self._note(match[1], match[2], int(match[3]))
        self.process.stderr.close()

    def _note(self, name: str, address: str, pid: int) -> None:
        self.services[name] = (address, pid)
        self._pids.add(pid)
