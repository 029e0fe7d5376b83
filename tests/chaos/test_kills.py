"""kill -9 of every service under load, with `slipstream up` to start it again: no text suffers, nothing stays held."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path

import grpc
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

NUM_TOKENS = 60  # of each stream
PATIENCE = 90.0  # seconds; a busy machine needs some for a service to load
VERIFIERS = ("verifier1", "verifier2")
MODEL_SERVICES = {*VERIFIERS, "drafter"}
ONCE = pytest.param(1, signal.SIGINT, id="once")
TOLD_OF_THE_END = ("UNAVAILABLE: ", "CANCELLED: ")  # the latter by gRPC, to a call that comes as the listener closes
TWENTY_TIMES = pytest.param(20, signal.SIGKILL, marks=[pytest.mark.slow, pytest.mark.timeout(1500)], id="20-times")


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


async def ready_load(up: Up) -> Load:
    turns = cycle(("draft_model", "both", "ngram"))
    async with Client(up.gateway, "none") as calm:
        return await start_load(calm, lambda: Client(up.gateway, next(turns)), NUM_TOKENS)


async def num_blocks(up: Up, name: str) -> int:
    """KV blocks that a service uses; none while it is not there."""
    try:
        return await kv_blocks_used(up.services[name][0], DrafterStub if name == "drafter" else VerifierStub)
    except grpc.aio.AioRpcError:
        return 0


async def kill(up: Up, name: str) -> None:
    """A service that has work; if it is a verifier, once the other has work too."""
    for one in VERIFIERS if name in VERIFIERS else MODEL_SERVICES & {name}:

        async def works(one: str = one) -> bool:
            return await num_blocks(up, one) > 0

        await eventually(works, PATIENCE)
    os.kill(up.services[name][1], signal.SIGKILL)


async def survive(up: Up, load: Load, names: Sequence[str]) -> None:
    """Does not wait for one service to be back before it kills the next: the others have to do without."""
    for name in names:
        await kill(up, name)
        await load.each_once_more(PATIENCE)
        if name == "gateway":  # the streams end with it, and clients ask again
            assert load.failures
            assert [failure for failure in load.failures if not failure.startswith(TOLD_OF_THE_END)] == []
            load.failures.clear()
        assert load.failures == [], f"after a kill of {name}"


async def wait_for_rest(up: Up) -> None:
    """All are there and none holds KV."""

    async def at_rest() -> bool:
        return not any([await num_blocks(up, name) for name in MODEL_SERVICES])

    await asyncio.to_thread(up.wait_for, lambda: len(up.told) % 2 == 0)  # each that was killed said it is back
    await eventually(at_rest)


@pytest.mark.parametrize(("rounds", "ended_by"), [ONCE, TWENTY_TIMES])
async def test_services_are_killed_under_eight_streams_and_no_stream_fails_that_has_a_verifier(
    tmp_path: Path, rounds: int, ended_by: signal.Signals
) -> None:
    with running(tmp_path) as up:
        load = await ready_load(up)
        async with load:
            await load.each_once_more(PATIENCE)
            await survive(up, load, ["verifier1", "drafter", "gateway", "verifier2"] * rounds)
        await wait_for_rest(up)
        assert load.failures == []
        assert len([line for line in up.told if "was killed" in line]) == 4 * rounds
        await end_under_load(up, load, ended_by, tmp_path)


async def end_under_load(up: Up, load: Load, number: signal.Signals, folder: Path) -> None:
    """Ctrl-C or kill -9 of the launcher: nothing that it started is left."""
    async with load:
        await load.each_once_more(PATIENCE)
        up.process.send_signal(number)
        await asyncio.to_thread(up.process.wait, 30)
        assert none_marked(str(folder))
    assert [failure for failure in load.failures if not failure.startswith(TOLD_OF_THE_END)] == []
