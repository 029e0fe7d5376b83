"""A program on a leash is the one that was asked for, and ends with the process that started it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import launcher.leash
from tests.launcher.process_table import gone

LEASH = [sys.executable, launcher.leash.__file__]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")


def test_it_becomes_the_program_and_hands_its_arguments_on(tmp_path: Path) -> None:
    code = f"import os, subprocess, sys; sys.exit(subprocess.call([*{LEASH!r}, str(os.getpid()), 'echo', 'a b', 'c']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "a b c\n"


def test_it_ends_when_the_process_that_started_it_is_killed() -> None:
    code = (
        f"import os, subprocess; one = subprocess.Popen([*{LEASH!r}, str(os.getpid()), 'sleep', '60']);"
        "print(one.pid, flush=True); one.wait()"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    with parent:
        pid = int(parent.stdout.readline())
        name = Path(f"/proc/{pid}/comm")
        while name.read_text() != "sleep\n":
            assert parent.poll() is None
        parent.kill()
    assert gone(pid)


def test_a_parent_that_is_gone_already_starts_nothing() -> None:
    assert subprocess.run([*LEASH, "1", "echo", "started"], capture_output=True, timeout=30, check=False).stdout == b""
