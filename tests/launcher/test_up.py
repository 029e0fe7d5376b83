"""`slipstream up` on a tiny model: three real processes, an answer, and nothing left however it ends."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.launcher.process_table import gone
from tests.tiny_models import make_checkpoint

LINE = re.compile(r"(verifier|drafter|gateway) +(\S+:\d+) +pid (\d+) +ready after [\d.]+ s\n")


class Up:
    """The command as a process, once it says that all is ready."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "launcher", "up", "--listen", "127.0.0.1:0", "--dtype", "float32", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.services: dict[str, tuple[str, int]] = {}
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line == "Ctrl-C stops all\n":
                return
            match = LINE.fullmatch(line)
            assert match, line
            self.services[match[1]] = (match[2], int(match[3]))
        raise AssertionError(f"it ended early: {self.process.communicate()[1]}")

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=30)
        return self.process.returncode, out, err

    def all_gone(self) -> bool:
        return all(gone(pid) for _, pid in self.services.values())


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("up") / "tiny")


@pytest.fixture
def up(model: Path) -> Iterator[Up]:
    running = Up("--model", str(model), "--draft-model", str(model), "--threads", "1")
    yield running
    running.process.kill()
    running.process.communicate(timeout=30)


def test_it_serves_and_a_ctrl_c_leaves_nothing(up: Up) -> None:
    assert list(up.services) == ["verifier", "drafter", "gateway"]
    command = [sys.executable, "-m", "launcher", "generate", "ab", "--target", up.services["gateway"][0]]
    command += ["--json", "--max-tokens", "12", "--temperature", "0"]
    answer = json.loads(subprocess.run(command, capture_output=True, timeout=60, check=True).stdout)
    assert 1 <= len(answer["token_ids"]) <= 12
    up.process.send_signal(signal.SIGINT)
    assert up.end() == (0, "stopped\n", "")
    assert up.all_gone()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
def test_killing_it_leaves_nothing(up: Up) -> None:
    up.process.kill()
    up.end()
    assert up.all_gone()


def test_a_service_that_dies_takes_the_rest_down_and_is_named(up: Up) -> None:
    subprocess.run(["kill", "-9", str(up.services["drafter"][1])], check=True)
    code, _, errors = up.end()
    assert code == 1
    assert errors.startswith("error: drafter ended with exit code -9")
    assert up.all_gone()
