"""The gateway as a process."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import aiohttp
import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.gateway.fakes import FakeVerifier, eventually

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def health_of(port: int) -> int:
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        request = health_pb2.HealthCheckRequest(service="slipstream.v1.Generation")
        reply = await health_pb2_grpc.HealthStub(channel).Check(request, timeout=15, wait_for_ready=True)
        return int(reply.status)


async def test_it_serves_as_long_as_there_is_a_verifier_and_stops_cleanly() -> None:
    verifier, port = FakeVerifier([]), free_port()
    verifier.port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", "--listen", f"127.0.0.1:{port}", "--verifier", verifier.address),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert await health_of(port) == NOT_SERVING
        await verifier.start()
        assert process.stdout is not None
        ready = await asyncio.wait_for(process.stdout.readline(), 15)
        assert ready.decode().strip() == f"READY gateway 127.0.0.1:{port}"
        assert await health_of(port) == SERVING
        await verifier.die()
        async with asyncio.timeout(5):
            while await health_of(port) != NOT_SERVING:
                await asyncio.sleep(0.05)
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 15) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_stream_over_http_goes_on_while_the_process_drains() -> None:
    verifier = FakeVerifier([])
    await verifier.start()
    addresses = ("--verifier", verifier.address, "--listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", *addresses), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    try:
        word, name, http_address = (await asyncio.wait_for(process.stdout.readline(), 30)).decode().split()
        assert (word, name) == ("HTTP", "gateway")
        assert (await asyncio.wait_for(process.stdout.readline(), 30)).startswith(b"READY gateway ")
        url, body = f"http://{http_address}/v1/completions", {"model": "tiny", "prompt": "a", "stream": True}
        async with aiohttp.ClientSession() as http:
            asking = asyncio.ensure_future(http.post(url, json=body))
            await eventually(lambda: verifier.opens, 15)
            verifier.commit(verifier.opens[0].sequence_id, 1, [5])
            async with await asking as response:
                process.terminate()
                await _refused(http, url)
                verifier.finish(verifier.opens[0].sequence_id, 2, [6])
                assert (await response.text()).endswith("data: [DONE]\n\n")
        assert await asyncio.wait_for(process.wait(), 15) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await verifier.die()


async def _refused(http: aiohttp.ClientSession, url: str) -> None:
    """Returns once nobody takes new connections."""
    async with asyncio.timeout(10):
        while True:
            try:
                await http.get(url, headers={"Connection": "close"})
            except aiohttp.ClientConnectionError:
                return


async def test_a_hangup_reads_the_tenants_again_and_keeps_them_if_the_file_is_broken(tmp_path: Path) -> None:
    file = tmp_path / "tenants.yaml"
    file.write_text("tenants: [{name: acme, anonymous: true}]")
    options = ["--verifier", "127.0.0.1:1", "--listen", "127.0.0.1:0", "--tenants", str(file), "--log-json"]
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", *options), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )

    async def audit_line() -> dict[str, object]:
        assert process.stderr is not None
        async with asyncio.timeout(15):
            while True:
                entry: dict[str, object] = json.loads(await process.stderr.readline())
                if entry["logger"] == "gateway.audit":
                    return entry

    try:
        assert (await audit_line())["message"] == "policy added"
        file.write_text("tenants: [{name: acme, anonymous: true, num_draft_tokens: 2}]")
        process.send_signal(signal.SIGHUP)
        changed = await audit_line()
        assert (changed["message"], changed["tenant"], changed["num_draft_tokens"]) == (
            "policy changed",
            "acme",
            "4 -> 2",
        )
        file.write_text("tenants: []")
        process.send_signal(signal.SIGHUP)
        assert (await audit_line())["message"] == "policies kept"
        process.terminate()
        assert await asyncio.wait_for(process.wait(), 15) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--verifier", "nowhere"], "error: verifiers holds 'nowhere'; each must be host:port"),
        (
            ["--verifier", "h:1", "--listen", "here", "--log-level", "warning"],
            "error: listen is 'here'; it must be host:port",
        ),
        (["--verifier", "h:1", "--http-listen", "here"], "error: http_listen is 'here'; it must be host:port"),
        (["--verifier", "h:1", "--tenants", "absent.yaml"], "error: absent.yaml: cannot be read"),
        (["--verifier", "h:1", "--log-level", "loud"], "error: log-level is 'loud'; it must be one of debug"),
    ],
)
def test_an_error_is_one_clear_line(options: list[str], line: str) -> None:
    result = subprocess.run([sys.executable, "-m", "gateway", *options], capture_output=True, text=True, timeout=30)
    assert result.returncode == 2
    assert result.stderr.startswith(line)
    assert result.stderr.count("\n") == 1


def test_it_runs_without_torch() -> None:
    program = "import sys, gateway.__main__; assert not {'torch', 'triton', 'transformers'} & set(sys.modules)"
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30, cwd=root)
