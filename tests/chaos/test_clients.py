"""A thousand clients cut mid-stream: nobody else notices, and no KV, file, thread, task or memory is left behind."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from slipstream.config import service_environment
from slipstream.wire.v1.drafter_pb2_grpc import DrafterStub
from tests.chaos.load import start_load, stream
from tests.chaos.remains import Held, held
from tests.e2e.cluster import Client, Cluster, eventually, kv_blocks_used
from tests.e2e.conftest import tenants
from tests.tiny_models import make_checkpoint, make_similar_checkpoint

AT_ONCE = 32
NUM_BEFORE = 500  # clients until buffers and allocators have their size
IN_ONE_PROCESS = 50  # that is killed with all of them
NUM_TOKENS = 400
PATIENCE = 60.0  # seconds; a busy machine needs some
MODULES = {"verifier": "verifier_svc", "drafter": "drafter_svc", "gateway": "gateway"}
SPARE_FILES, SPARE_THREADS, SPARE_TASKS = 3, 1, 3
SPARE_OBJECTS = 900  # a leak of one for each client is more
SPARE_KIB = 48 << 10  # what allocators may keep; a leak of 50 KiB a client would be as much


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    target = make_checkpoint(tmp_path / "target", logit_std=3.0)
    draft = make_similar_checkpoint(target, tmp_path / "draft")
    modules = {name: f"tests.chaos.counted_services {module} {tmp_path}" for name, module in MODULES.items()}
    with Cluster(tmp_path) as cluster:
        cluster.verifier(target, "--kv-memory-mib", "16", module=modules["verifier"])
        cluster.drafter(draft, "--kv-memory-mib", "16", module=modules["drafter"])
        cluster.gateway(tenants("coupled", max_wait_ms=5, max_concurrent=256), module=modules["gateway"])
        yield cluster


@dataclass(frozen=True, slots=True)
class Rest:
    """What a service holds when it has nothing to do."""

    held: Held
    tasks: int
    objects: int


async def cut(client: Client, index: int, choice: random.Random) -> None:
    """A client that goes before its first token, in the middle, or with its whole connection."""
    call = client.stream(stream(index, NUM_TOKENS))
    if choice.random() < 0.5:
        await asyncio.sleep(choice.random() * 0.3)
    else:
        await call.read()
    if choice.random() < 0.5:
        call.cancel()


async def cut_clients(cluster: Cluster, num_clients: int, choice: random.Random) -> None:
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(index: int) -> None:
        async with gate, cluster.client("both") as client:  # leaving it cuts the connection
            await cut(client, index, choice)

    await asyncio.gather(*(one(index) for index in range(num_clients)))


async def kill_clients(cluster: Cluster) -> None:
    arguments = [cluster.address("gateway"), "both", str(IN_ONE_PROCESS), str(NUM_TOKENS)]
    reader = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.chaos.reader", *arguments, stdout=subprocess.PIPE, env=service_environment(1)
    )
    try:
        assert reader.stdout is not None
        assert await asyncio.wait_for(reader.stdout.readline(), PATIENCE) == b"reading\n"
    finally:
        reader.kill()
        await reader.wait()


async def rest_of(cluster: Cluster, name: str, folder: Path) -> Rest:
    file = folder / MODULES[name]
    file.unlink(missing_ok=True)
    os.kill(cluster.pid(name), signal.SIGUSR1)

    async def written() -> bool:
        return file.exists()

    await eventually(written, PATIENCE)
    return Rest(held(cluster.pid(name)), *map(int, file.read_text().split()))


async def all_at_rest(cluster: Cluster, folder: Path) -> dict[str, Rest]:
    async def free() -> bool:
        verifier = await kv_blocks_used(cluster.address("verifier"))
        return verifier == await kv_blocks_used(cluster.address("drafter"), DrafterStub) == 0

    await eventually(free, PATIENCE)
    await asyncio.sleep(1.0)  # sockets and calls end a little after what they held
    return {name: await rest_of(cluster, name, folder) for name in MODULES}


def check_same(before: dict[str, Rest], after: dict[str, Rest]) -> None:
    for name in MODULES:
        old, new = before[name], after[name]
        assert new.held.files <= old.held.files + SPARE_FILES, (name, old, new)
        assert new.held.threads <= old.held.threads + SPARE_THREADS, (name, old, new)
        assert new.tasks <= old.tasks + SPARE_TASKS, (name, old, new)
        assert new.objects <= old.objects + SPARE_OBJECTS, (name, old, new)
        assert new.held.resident_kib <= old.held.resident_kib + SPARE_KIB, (name, old, new)


@pytest.mark.parametrize(
    "num_clients",
    [
        pytest.param(1_000, id="1000"),
        pytest.param(10_000, marks=[pytest.mark.slow, pytest.mark.timeout(900)], id="10000"),
    ],
)
async def test_clients_that_are_cut_leave_nothing_behind_and_disturb_nobody(
    cluster: Cluster, tmp_path: Path, num_clients: int
) -> None:
    choice = random.Random(0)
    async with cluster.client("none") as calm:
        load = await start_load(calm, lambda: cluster.client("draft_model"), 60, num_streams=2)
    async with load:
        await cut_clients(cluster, NUM_BEFORE, choice)
    before = await all_at_rest(cluster, tmp_path)
    async with load:
        await cut_clients(cluster, num_clients - IN_ONE_PROCESS, choice)
        await kill_clients(cluster)
        await load.each_once_more(PATIENCE)
    assert load.failures == []
    check_same(before, await all_at_rest(cluster, tmp_path))
