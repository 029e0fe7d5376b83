"""`slipstream up` on a tiny model: real processes that come back when killed, and nothing left however it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import cast
from urllib.request import Request, urlopen

import pytest

import launcher.up
from launcher.client import Client, connect
from launcher.processes import ServiceProcess
from launcher.run_file import read
from launcher.stack import Service, ServiceSpec, Stack
from launcher.up import strangers
from slipstream.errors import Unavailable
from slipstream.wire.v1 import generation_pb2 as pb
from tests.launcher.process_table import gone
from tests.launcher.up_process import Up
from tests.tiny_models import make_checkpoint

SECONDS = 30.0
ASKED = pb.GenerateRequest(prompt=pb.Prompt(text="ab"), temperature=0.0, max_tokens=12, ignore_eos=True)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("up") / "tiny")


@pytest.fixture
def up(model: Path, tmp_path: Path) -> Iterator[Up]:
    running = Up(
        tmp_path, "--model", str(model), "--draft-model", str(model), "--threads", "1", "--dtype", "float32",
        "--kv-memory", "1MiB", "--max-model-len", "256", "--max-num-seqs", "7", "--watch",
    )  # fmt: skip
    yield running
    running.kill()


def service(kind: str, address: str) -> Service:
    spec = ServiceSpec(kind=kind, name=kind, module="", listen=address, metrics="", options=())
    return Service(spec, cast(ServiceProcess, None))


def test_a_drafter_of_another_vocabulary_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    vocabularies = {"v:1": "target's", "d:1": "target's", "d:2": "other"}
    monkeypatch.setattr(launcher.up, "_vocabulary", lambda address, kind, tls: vocabularies[address])
    stack = Stack((service("verifier", "v:1"), service("drafter", "d:1"), service("drafter", "d:2")))
    (line,) = strangers(stack)
    assert line.startswith("warning: the drafter at d:2 has another vocabulary than the target")
    assert strangers(Stack(stack.services[:2])) == []
    assert strangers(Stack(stack.services[1:])) == []  # the verifier runs elsewhere


def answer(up: Up) -> list[int]:
    with connect(up.gateway) as client:
        return [token for message in client.generate(ASKED, SECONDS) for token in message.token_ids]


def slipstream(up: Up, tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "launcher", *arguments, "--target", up.gateway]
    environment = os.environ | {"XDG_RUNTIME_DIR": str(tmp_path)}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)


def test_it_serves_says_what_it_holds_and_a_ctrl_c_leaves_nothing(up: Up, tmp_path: Path) -> None:
    assert list(up.services) == ["verifier", "drafter", "gateway"]
    # 2 layers x 2 KV heads x 8 dimensions x 16 tokens x 4 bytes x (K and V): 4 KiB a block, 1 MiB holds 256 of them,
    # and 7 sequences of 256 tokens could never use more than 112.
    assert up.descriptions["verifier"] == (
        "tiny in float32 on cpu: 112 KV blocks of 16 tokens, enough for 7.0 sequences of 256"
    )
    assert len(answer(up)) == 12
    _check_status(up, tmp_path)
    _check_bench(up, tmp_path)
    _check_top(up, tmp_path)
    _check_watching(up)
    up.process.send_signal(signal.SIGINT)
    assert up.end() == (0, "stopped\n")
    assert up.told == []
    assert up.all_gone()
    assert read(tmp_path / "slipstream", up.gateway) == []


def _check_top(up: Up, tmp_path: Path) -> None:
    result = slipstream(up, tmp_path, "top", "--once", "--json", "--interval", "0.1")
    view = json.loads(result.stdout)
    assert [service["kind"] for service in view["services"]] == ["verifier", "drafter", "gateway"]
    assert view["services"][0]["kv_blocks_total"] == 112
    assert {drafting["tenant"] for drafting in view["drafting"]} == {"default"}


def _check_watching(up: Up) -> None:
    """The address that is printed opens the page, and the key in it the events."""
    address, _, key = up.watch_address.partition("#")
    with urlopen(address, timeout=SECONDS) as page:
        assert b"Slipstream" in page.read()
    asked = Request(f"{address}watch/events", headers={"Authorization": f"Bearer {key}"})
    with urlopen(asked, timeout=SECONDS) as events:
        assert events.status == 200


def _check_status(up: Up, tmp_path: Path) -> None:
    result = slipstream(up, tmp_path, "status", "--json")
    statuses = {status["name"]: status for status in json.loads(result.stdout)}
    assert result.returncode == 0
    assert list(statuses) == ["verifier", "drafter", "gateway"]
    assert {status["health"] for status in statuses.values()} == {"SERVING"}
    verifier = statuses["verifier"]
    assert (verifier["address"], verifier["model"]) == (up.services["verifier"][0], "tiny")
    assert (verifier["num_sequences"], verifier["kv_blocks_total"]) == (0, 112)
    assert verifier["passes"]["num_committed"] == 12
    table = slipstream(up, tmp_path, "status").stdout
    assert all(word in table for word in ("SERVING", "verifier", up.gateway))


def _check_bench(up: Up, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("ab\ncd\n")
    options = ("--streams", "2", "--requests", "3", "--max-tokens", "8", "--ignore-eos", "--no-chat")
    result = slipstream(up, tmp_path, "bench", str(prompts), *options, "--json")
    assert (result.returncode, result.stderr) == (0, "")
    report = json.loads(result.stdout)
    assert (report["requests"], report["output_tokens"], report["failures"]) == (6, 48, {})
    assert report["tokens_per_second"] > 0
    assert 0 < report["ttft_ms"]["p50"] <= report["ttft_ms"]["p99"]


def test_each_service_that_is_killed_comes_back_where_it_was_and_text_is_the_same(up: Up) -> None:
    before, services = answer(up), dict(up.services)
    _check_stream_outlives_drafter(up)
    up.wait_for(lambda: up.services["drafter"] != services["drafter"])
    services["drafter"] = up.services["drafter"]
    for name in services:
        address, pid = services[name]
        os.kill(pid, signal.SIGKILL)
        up.wait_for(lambda name=name, pid=pid: up.services[name][1] != pid)  # type: ignore[misc]
        assert up.services[name][0] == address
        assert gone(pid)
        others = [other for other in services if other != name]
        assert [up.services[other] for other in others] == [services[other] for other in others]
        services[name] = up.services[name]
        assert answer(up) == before
    assert len([line for line in up.told if "was killed" in line]) == 4


def _check_stream_outlives_drafter(up: Up) -> None:
    wanted = pb.GenerateRequest(prompt=pb.Prompt(text="ab"), temperature=0.0, max_tokens=200, ignore_eos=True)
    with connect(up.gateway) as client:
        stream = client.generate(wanted, SECONDS)
        first = next(stream)
        os.kill(up.services["drafter"][1], signal.SIGKILL)
        assert len(first.token_ids) + sum(len(message.token_ids) for message in stream) == 200


def ask_for_ever(client: Client) -> None:
    while True:  # a signal needs a moment to get there
        list(client.generate(ASKED, SECONDS))


def test_sigterm_lets_running_requests_finish_and_refuses_new_ones(up: Up) -> None:
    wanted = pb.GenerateRequest(prompt=pb.Prompt(text="ab"), temperature=0.0, max_tokens=240, ignore_eos=True)
    tokens: list[int] = []
    with connect(up.gateway) as client, connect(up.gateway) as late:
        stream = client.generate(wanted, SECONDS)
        tokens += next(stream).token_ids
        reader = Thread(target=lambda: tokens.extend(t for message in stream for t in message.token_ids))
        up.process.send_signal(signal.SIGTERM)
        reader.start()
        with pytest.raises(Unavailable):
            ask_for_ever(late)
        reader.join(SECONDS)
    assert len(tokens) == 240
    assert up.end() == (0, "stopped\n")
    assert up.all_gone()


@pytest.mark.slow
def test_a_verifier_and_its_drafter_in_one_process_are_two_services_that_come_back_together(
    model: Path, tmp_path: Path
) -> None:
    models = ("--model", str(model), "--draft-model", str(model), "--dtype", "float32", "--kv-memory", "1MiB")
    up = Up(tmp_path, *models, "--placement", "one_process")
    try:
        assert list(up.services) == ["verifier", "gateway"]
        assert up.descriptions["verifier"].endswith("; with drafter tiny")
        before = answer(up)
        os.kill(up.services["verifier"][1], signal.SIGKILL)
        assert answer(up) == before
        statuses = json.loads(slipstream(up, tmp_path, "status", "--json").stdout)
        assert [(one["name"], one["kind"], one["health"]) for one in statuses[:2]] == [
            ("verifier", "verifier", "SERVING"),
            ("drafter", "drafter", "SERVING"),
        ]
    finally:
        up.kill()


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's")
def test_a_file_says_what_runs_flags_go_before_it_and_a_kill_leaves_nothing(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "slipstream.yaml"
    file.write_text(f"verifiers: [{{model: {model}, dtype: float32, threads: 1, replicas: 2, max_num_seqs: 3}}]")
    running = Up(tmp_path, "--config", str(file), "--max-model-len", "64")
    try:
        assert list(running.services) == ["verifier1", "verifier2", "gateway"]
        assert running.descriptions["verifier2"].endswith("12 KV blocks of 16 tokens, enough for 3.0 sequences of 64")
        assert len(answer(running)) == 12
    finally:
        running.kill()
    assert running.all_gone()
