"""Steps of a GPU call end in time, with all that they started, and leave their logs in one file."""

from __future__ import annotations

import importlib.util
import sys
import tarfile
import time
from pathlib import Path

from bench.gpu_check import pack, run
from bench.gpu_steps import LOGS, STEPS, Step
from tests.launcher.process_table import gone

SLEEPS = "import subprocess, sys, time; print(subprocess.Popen(['sleep', '60']).pid, flush=True); time.sleep(60)"


def test_a_step_that_takes_too_long_ends_with_what_it_started(tmp_path: Path) -> None:
    start = time.monotonic()
    ended = run("slow", Step(60, (sys.executable, "-c", SLEEPS)), 4, tmp_path)
    assert ended.startswith("slow: over 4 s")
    assert time.monotonic() - start < 30
    child = int((tmp_path / "slow.log").read_text())
    assert gone(child)


def test_how_a_step_ended_is_told_and_its_log_is_packed(tmp_path: Path) -> None:
    says = f"print('here: {LOGS}'); raise SystemExit(3)"
    assert run("fails", Step(30, (sys.executable, "-c", says)), 30, tmp_path).startswith("fails: exit 3")
    pack(tmp_path, tmp_path / "out" / "logs.tar.gz")
    with tarfile.open(tmp_path / "out" / "logs.tar.gz") as tar:
        log = tar.extractfile("logs/fails.log")
        assert log is not None
        assert log.read().decode() == f"here: {tmp_path}\n"


def test_every_step_runs_a_module_that_there_is() -> None:
    for name, step in STEPS.items():
        module = step.command[step.command.index("-m") + 1]
        assert importlib.util.find_spec(module), f"{name} runs {module}"
