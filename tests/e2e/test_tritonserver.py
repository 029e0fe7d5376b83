"""A draft model on a tritonserver never changes the text, whatever it says and however it ends."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sysconfig
import venv
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import pytest

from launcher.processes import ProcessConfig, Processes
from slipstream.config import default_model_dir
from slipstream.wire.v1 import generation_pb2
from tests.e2e.cluster import Answer, Cluster, eventually, free_port, request
from tests.gateway.fake_tritonserver import MODEL, FakeTritonServer, Script
from tests.tiny_models import make_checkpoint

ROOT = Path(__file__).parents[2]
PROMPT = (5, 6, 7)
NUM_TOKENS = 80
TENANTS = (
    {"name": "none", "proposers": ["none"]},
    {"name": "drafted", "proposers": ["tritonserver"], "num_draft_tokens": 4, "max_wait_ms": 50},
    {"name": "auto", "proposers": "auto", "max_wait_ms": 50},
    {"name": "coupled", "proposers": ["tritonserver"], "mode": "coupled", "max_wait_ms": 50},
)


@pytest.fixture(scope="module")
def port() -> int:
    """Where the tritonserver is, if there is one."""
    return free_port()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("cluster")
    with Cluster(folder) as cluster:
        cluster.verifier(make_checkpoint(folder / "target", logit_std=3.0))
        cluster.gateway(TENANTS, "--tritonserver", f"127.0.0.1:{port}", "--tritonserver-model", MODEL)
        yield cluster


@pytest.fixture
async def fake(port: int) -> AsyncIterator[FakeTritonServer]:
    server = FakeTritonServer(lambda prefix, num_tokens: ())
    server.port = port
    await server.start()
    yield server
    await server.die()


def ask(temperature: float = 0.0) -> generation_pb2.GenerateRequest:
    return request(PROMPT, temperature=temperature, seed=3, max_tokens=NUM_TOKENS, ignore_eos=True)


async def answer(cluster: Cluster, tenant: str, temperature: float = 0.0) -> Answer:
    async with cluster.client(tenant) as client:
        return await client.generate(ask(temperature))


async def accepted(cluster: Cluster, expected: Answer, tenant: str = "drafted", temperature: float = 0.0) -> int:
    """Draft tokens in an answer that must be as expected."""
    found = await answer(cluster, tenant, temperature)
    assert (found.token_ids, found.text) == (expected.token_ids, expected.text)
    return sum(found.drafted)


async def drafts_again(cluster: Cluster, expected: Answer) -> None:
    """Once the gateway has found the server, which it looks for with pauses."""

    async def is_drafted() -> bool:
        return await accepted(cluster, expected) > 0

    await eventually(is_drafted, 30)


async def found(cluster: Cluster, fake: FakeTritonServer) -> Answer:
    """The greedy text, once the gateway drafts it from this server, which knows it."""
    plain = await answer(cluster, "none")
    fake.say = Script((*PROMPT, *plain.token_ids))
    await drafts_again(cluster, plain)
    return plain


@pytest.mark.parametrize("tenant, temperature", [("drafted", 0.0), ("drafted", 1.0), ("coupled", 1.0), ("auto", 0.0)])
async def test_with_a_draft_that_is_right_the_text_is_the_targets_and_was_drafted(
    cluster: Cluster, fake: FakeTritonServer, tenant: str, temperature: float
) -> None:
    await found(cluster, fake)
    plain = await answer(cluster, "none", temperature)
    fake.say = Script((*PROMPT, *plain.token_ids))
    assert await accepted(cluster, plain, tenant, temperature) > 0
    assert fake.most_at_once == 1


@pytest.mark.parametrize("draft", [lambda prefix, n: [9] * n, lambda prefix, n: [1 << 20] * n, lambda prefix, n: ()])
async def test_with_a_draft_that_is_wrong_or_no_tokens_of_the_target_the_text_is_the_same(
    cluster: Cluster, fake: FakeTritonServer, draft: Callable[[tuple[int, ...], int], Sequence[int]]
) -> None:
    plain = await found(cluster, fake)
    fake.say = draft
    fake.calls.clear()
    assert await accepted(cluster, plain) == 0
    assert fake.calls


async def test_a_server_that_is_slow_holds_nobody_up(cluster: Cluster, fake: FakeTritonServer) -> None:
    plain = await found(cluster, fake)
    fake.may_answer.clear()
    assert await accepted(cluster, plain) == 0
    assert fake.most_at_once == 1


async def test_a_server_that_dies_in_the_middle_changes_no_text_and_drafts_again_when_it_is_back(
    cluster: Cluster, fake: FakeTritonServer
) -> None:
    plain = await found(cluster, fake)
    script = fake.say
    dying = asyncio.Event()

    def say_and_die(prefix: tuple[int, ...], num_tokens: int) -> Sequence[int]:
        if len(prefix) > NUM_TOKENS // 2:
            dying.set()
        return script(prefix, num_tokens)

    fake.say = say_and_die
    running = asyncio.create_task(accepted(cluster, plain))
    await dying.wait()
    await fake.die()
    assert await running > 0
    assert await accepted(cluster, plain) == 0
    fake.say = script
    await fake.start()
    await drafts_again(cluster, plain)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_real_tritonserver_drafts_and_its_death_is_survived(
    cluster: Cluster, port: int, pytriton: Path
) -> None:
    plain = await answer(cluster, "none")
    async with asyncio.timeout(600):
        with Processes(ProcessConfig(stop_seconds=20)) as processes:
            start_pytriton(processes, pytriton, port)
            await drafts_again(cluster, plain)
            stopping = asyncio.create_task(asyncio.to_thread(processes.stop))
            while not stopping.done():
                await accepted(cluster, plain)
    assert await accepted(cluster, plain) == 0


def start_pytriton(processes: Processes, python: Path, port: int) -> None:
    libraries = {"LD_LIBRARY_PATH": str(sysconfig.get_config_var("LIBDIR"))}  # its workers load Python's own
    script = ROOT / "tests" / "e2e" / "pytriton_draft_server.py"
    processes.start("tritonserver", [str(python), str(script), f"127.0.0.1:{port}", MODEL], {**os.environ, **libraries})


@pytest.fixture(scope="module")
def pytriton() -> Path:
    """The Python of a virtual environment with `nvidia-pytriton`, which asks for another numpy; it is kept."""
    folder = default_model_dir().parent / "pytriton"
    python = folder / "bin" / "python"
    install = [str(python), "-m", "pip", "install", "--quiet", "nvidia-pytriton>=0.7"]
    try:
        if not python.exists():
            venv.create(folder, with_pip=True)
        subprocess.run(install, stderr=subprocess.PIPE, text=True, timeout=600, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        why = error.stderr.strip()[-300:] if isinstance(error, subprocess.CalledProcessError) else error
        pytest.skip(f"nvidia-pytriton cannot be installed in {folder}: {why}")
    return python
