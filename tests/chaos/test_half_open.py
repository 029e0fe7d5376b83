"""Connections whose other end fell silent: packets are lost, nobody is told. The peer is given up, streams go on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import cycle
from pathlib import Path

import grpc
import pytest

from slipstream.config import service_environment
from slipstream.wire.v1.drafter_pb2_grpc import DrafterStub
from slipstream.wire.v1.verifier_pb2_grpc import VerifierStub
from tests.chaos.load import start_load
from tests.chaos.network import Host, Network, NotPermitted
from tests.e2e.cluster import Cluster, eventually, kv_blocks_used
from tests.e2e.conftest import tenants
from tests.tiny_models import make_checkpoint, make_similar_checkpoint

GIVEN_UP = 15.0  # seconds: a ping is due after 10 and waited for 5, slipstream/wire/channel.py
NUM_TOKENS = 60
ENDLESS = 16_000
OPTIONS = ("--kv-memory-mib", "16")


@pytest.fixture
def network() -> Iterator[Network]:
    try:
        with Network() as network:
            yield network
    except NotPermitted as error:
        pytest.skip(f"needs network namespaces (root and iproute2): {error}")


@pytest.fixture
def models(tmp_path: Path) -> tuple[Path, Path]:
    target = make_checkpoint(tmp_path / "target", logit_std=3.0, max_position_embeddings=2 * ENDLESS)
    return target, make_similar_checkpoint(target, tmp_path / "draft")


async def test_streams_outlive_a_client_a_drafter_and_a_verifier_that_fall_silent(
    tmp_path: Path, models: tuple[Path, Path], network: Network
) -> None:
    far_verifier, far_drafter, far_client = network.host(), network.host(), network.host()
    with Cluster(tmp_path) as cluster:
        cluster.verifier(models[0], *OPTIONS, name="verifier1")
        cluster.verifier(models[0], *OPTIONS, name="verifier2", place=far_verifier.place)
        cluster.drafter(models[1], *OPTIONS, place=far_drafter.place)
        cluster.gateway(tenants("coupled", max_wait_ms=20, max_tokens=ENDLESS), place=network.place)
        turns = cycle(("draft_model", "both", "ngram"))
        async with cluster.client("none") as calm:
            load = await start_load(calm, lambda: cluster.client(next(turns)), NUM_TOKENS, num_streams=4)
        async with load, reading(cluster, far_client) as reader:
            await eventually(lambda: works(cluster, "drafter"), 10.0)
            assert reader.returncode is None
            network.pull(far_client)
            network.pull(far_drafter)
            await load.each_once_more(10.0)  # nobody waits until they are given up

            await eventually(lambda: works(cluster, "verifier2"), 10.0)
            network.pull(far_verifier)
            with pytest.raises(grpc.aio.AioRpcError):
                await works(cluster, "verifier2")
            await load.each_once_more(GIVEN_UP + 10.0)

            network.plug(far_verifier)
            network.plug(far_drafter)
            for name in ("verifier2", "drafter"):
                await eventually(partial(works, cluster, name), 20.0)
            await load.finish()
            for name in ("verifier1", "verifier2", "drafter"):  # also what the silent client held
                await eventually(partial(idle, cluster, name), 20.0)
        assert load.failures == []


@asynccontextmanager
async def reading(cluster: Cluster, host: Host) -> AsyncIterator[Process]:
    """A client there with endless streams. With its cable pulled it can tell nobody that it goes."""
    arguments = [sys.executable, "-m", "tests.chaos.reader", cluster.address("gateway"), "ngram", "2", str(ENDLESS)]
    reader = await asyncio.create_subprocess_exec(
        *host.place.prefix, *arguments, stdout=subprocess.PIPE, env=service_environment(1)
    )
    try:
        assert reader.stdout is not None
        assert await asyncio.wait_for(reader.stdout.readline(), 30.0) == b"reading\n"
        yield reader
    finally:
        with suppress(ProcessLookupError):
            reader.kill()
        await reader.wait()


async def works(cluster: Cluster, name: str) -> bool:
    stub = DrafterStub if name == "drafter" else VerifierStub
    return await kv_blocks_used(cluster.address(name), stub) > 0


async def idle(cluster: Cluster, name: str) -> bool:
    return not await works(cluster, name)
