"""kill -9 of every service under load, with `slipstream up` to start it again: no text suffers, nothing stays held."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

import pytest
import yaml

from slipstream.wire.v1.drafter_pb2_grpc import DrafterStub
from slipstream.wire.v1.verifier_pb2_grpc import VerifierStub
from tests.chaos.load import Load, start_load
from tests.chaos.remains import none_marked
from tests.e2e.cluster import Client, eventually, hashed_keys, kv_blocks_used
from tests.e2e.conftest import tenants
from tests.launcher.up_process import Up
from tests.tiny_models import make_checkpoint, make_similar_checkpoint

NUM_TOKENS = 150  # of each stream: a second or two of work
VERIFIERS = ("verifier1", "verifier2")
ONCE = pytest.param(1, id="once")
TWENTY_TIMES = pytest.param(20, marks=[pytest.mark.slow, pytest.mark.timeout(1500)], id="20-times")


@contextmanager
def running(folder: Path) -> Iterator[Up]:
    """Two verifiers, a drafter and a gateway under `slipstream up`; whatever happens, nothing of it stays."""
    target = make_checkpoint(folder / "target", logit_std=3.0)
    draft = make_similar_checkpoint(target, folder / "draft")
    common = {"dtype": "float32", "threads": 1, "kv_memory": "16MiB"}
    topology = {
        "verifiers": [{"model": str(target), "replicas": 2, **common}],
        "drafters": [{"model": str(draft), **common}],
        "gateway": {"tenants": "tenants.yaml"},
    }
    (folder / "slipstream.yaml").write_text(yaml.safe_dump(topology))
    (folder / "tenants.yaml").write_text(yaml.safe_dump({"tenants": hashed_keys(tenants("coupled", max_wait_ms=20))}))
    up = Up(folder, "--config", str(folder / "slipstream.yaml"))
    try:
        yield up
    finally:
        up.kill()
        assert none_marked(str(folder))


def client_of(up: Up, *names: str) -> Callable[[], Client]:
    turns = cycle(names)
    return lambda: Client(up.gateway, next(turns))


async def num_blocks(up: Up) -> dict[str, int]:
    stubs = dict.fromkeys(VERIFIERS, VerifierStub) | {"drafter": DrafterStub}
    return {name: await kv_blocks_used(up.services[name][0], stub) for name, stub in stubs.items()}


async def kill_and_wait(up: Up, name: str) -> None:
    """Kills a service that has work, and returns when it is ready again."""
    if name != "gateway":
        await eventually(lambda: has_work(up, name), 30.0)
    pid = up.services[name][1]
    os.kill(pid, signal.SIGKILL)
    await asyncio.to_thread(up.wait_for, lambda: up.services[name][1] != pid)


async def has_work(up: Up, name: str) -> bool:
    return (await num_blocks(up))[name] > 0


async def survive(up: Up, load: Load, names: Sequence[str]) -> None:
    for name in names:
        await kill_and_wait(up, name)
        await load.each_once_more(60.0)
        if name == "gateway":  # the streams end with it; clients ask again
            assert load.failures
            assert all(failure.startswith("UNAVAILABLE: ") for failure in load.failures), load.failures
            load.failures.clear()
        assert load.failures == [], f"after a kill of {name}"


@pytest.mark.parametrize("rounds", [ONCE, TWENTY_TIMES])
async def test_each_service_is_killed_under_eight_streams_and_none_fails_that_has_a_verifier(
    tmp_path: Path, rounds: int
) -> None:
    with running(tmp_path) as up:
        async with client_of(up, "none")() as calm:
            load = await start_load(calm, client_of(up, "draft_model", "both", "ngram"), NUM_TOKENS)
        rest = await num_blocks(up)
        async with load:
            await load.each_once_more(60.0)
            await survive(up, load, [*VERIFIERS, "drafter", "gateway"] * rounds)
        assert load.failures == []

        async def at_rest() -> bool:
            return await num_blocks(up) == rest

        await eventually(at_rest)
        assert len([line for line in up.told if "was killed" in line]) == 4 * rounds
        up.process.send_signal(signal.SIGINT)
        assert up.end() == (0, "stopped\n")
        assert none_marked(str(tmp_path))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "kill-9"])
async def test_a_launcher_that_is_ended_under_load_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    with running(tmp_path) as up:
        async with client_of(up, "none")() as calm:
            load = await start_load(calm, client_of(up, "draft_model", "both", "ngram"), NUM_TOKENS)
        async with load:
            await load.each_once_more(60.0)
            up.process.send_signal(number)
            await asyncio.to_thread(up.process.wait, 30)
            assert none_marked(str(tmp_path))
        assert all(failure.startswith("UNAVAILABLE: ") for failure in load.failures), load.failures
