"""Real services as processes on free loopback ports, for end-to-end tests. Knows command lines; no expectations."""

from __future__ import annotations

import asyncio
import hashlib
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc
import yaml

from launcher.processes import ProcessConfig, Processes, ServiceProcess, Sink
from slipstream.config import service_environment
from slipstream.wire.channel import open_channel
from slipstream.wire.tls import ClientTls
from slipstream.wire.v1 import exchange_pb2, generation_pb2, generation_pb2_grpc, verifier_pb2_grpc

START = ProcessConfig(start_seconds=60.0, stop_seconds=5.0)
DEADLINE = 60.0  # of any one request


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(frozen=True, slots=True)
class Place:
    """Where a service runs: the address it has there, and what its command must start with to get there."""

    address: str = "127.0.0.1"
    prefix: tuple[str, ...] = ()


HERE = Place()


class Cluster:
    """Verifiers, drafters and one gateway, started in this order; all are ready when the gateway is.

    Services are named; a killed one can be started again under its address.
    """

    def __init__(self, folder: Path, sink: Sink = lambda name, line: None, tls: ClientTls | None = None) -> None:
        self._folder = folder
        self._tls = tls  # how services are called
        self._processes = Processes(START, sink, tls)
        self._commands: dict[str, list[str]] = {}
        self._addresses: dict[str, str] = {}
        self._running: dict[str, ServiceProcess] = {}

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for service in self._running.values():
            service.kill()  # all at once: how services drain has tests of its own
        self._processes.stop()

    def verifier(
        self, model: Path, *options: str, name: str = "verifier", module: str = "verifier_svc", place: Place = HERE
    ) -> str:
        return self._start(name, [*_module(module), "--model", str(model), "--dtype", "float32", *options], place)

    def drafter(
        self, model: Path, *options: str, name: str = "drafter", module: str = "drafter_svc", place: Place = HERE
    ) -> str:
        return self._start(name, [*_module(module), "--model", str(model), "--dtype", "float32", *options], place)

    def pair(self, model: Path, draft_model: Path, *options: str, name: str = "verifier") -> str:
        """A verifier and its drafter in one process, `--hand-over` or not; both are asked for by `name`."""
        words = ["--model", str(model), "--dtype", "float32", *options]
        drafter = ["+", "--model", str(draft_model), "--dtype", "float32"]
        address = f"{HERE.address}:{free_port()}"
        self._commands[name] = [*_module("launcher.host"), *words, "--listen", address, *drafter]
        self._addresses |= {name: address, "drafter": address}
        self._launch(name)
        return address

    def gateway(
        self, tenants: Sequence[Mapping[str, Any]], *options: str, module: str = "gateway", place: Place = HERE
    ) -> str:
        """Connects to all verifiers and drafters started so far."""
        for service in self._running.values():
            self._processes.wait_ready(service)
        file = self._folder / "tenants.yaml"
        file.write_text(yaml.safe_dump({"tenants": hashed_keys(tenants)}))
        command = [*_module(module), "--tenants", str(file), *options]
        for name, address in self._addresses.items():
            command += [f"--{name.rstrip('0123456789')}", address]
        address = self._start("gateway", command, place)
        self._processes.wait_ready(self._running["gateway"])
        return address

    def kill(self, name: str) -> None:
        self._running[name].signal(signal.SIGKILL)

    def terminate(self, name: str) -> None:
        """Asks it to drain, and the second time to end at once."""
        self._running[name].signal(signal.SIGTERM)

    def restart(self, name: str) -> None:
        """Returns when it is healthy."""
        self._launch(name)
        self._processes.wait_ready(self._running[name])

    def alive(self, name: str) -> bool:
        return self._running[name].running

    def pid(self, name: str) -> int:
        return self._running[name].pid

    def client(self, tenant: str = "") -> Client:
        return Client(self._addresses["gateway"], tenant, self._tls)

    def address(self, name: str) -> str:
        return self._addresses[name]

    def http_address(self) -> str:
        """Of a gateway with `--http-listen`."""
        return self._running["gateway"].http_address

    def metrics_address(self, name: str) -> str:
        """Of a service that was told to show metrics."""
        return self._running[name].metrics_address

    def _start(self, name: str, command: list[str], place: Place) -> str:
        address = f"{place.address}:{free_port()}"
        self._commands[name] = [*place.prefix, *command, "--listen", address]
        self._addresses[name] = address
        self._launch(name)
        return address

    def _launch(self, name: str) -> None:
        service = self._processes.start(name, self._commands[name], service_environment(1))
        self._running[name] = service


@dataclass(slots=True)
class Answer:
    """One completion as a client saw it."""

    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    drafted: list[bool] = field(default_factory=list)
    last: generation_pb2.GenerateResponse = field(default_factory=generation_pb2.GenerateResponse)

    def add(self, message: generation_pb2.GenerateResponse) -> None:
        self.text += message.text
        self.token_ids += message.token_ids
        self.drafted += message.drafted
        self.last = message


class Client:
    """An asynchronous client of the gateway, calling as one tenant (whose key is its name)."""

    def __init__(self, address: str, tenant: str = "", tls: ClientTls | None = None) -> None:
        self._channel = open_channel(address, tls)
        self.stub = generation_pb2_grpc.GenerationStub(self._channel)
        self.metadata = (("authorization", f"Bearer {tenant}"),) if tenant else ()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._channel.close()

    def stream(self, request: generation_pb2.GenerateRequest) -> Any:
        return self.stub.Generate(request, timeout=DEADLINE, metadata=self.metadata)

    async def generate(self, request: generation_pb2.GenerateRequest) -> Answer:
        answer = Answer()
        async for message in self.stream(request):
            answer.add(message)
        return answer

    async def generate_all(self, requests: Sequence[generation_pb2.GenerateRequest], at_once: int) -> list[Answer]:
        """Answers in the order of the requests, `at_once` of them in flight."""
        gate = asyncio.Semaphore(at_once)

        async def one(request: generation_pb2.GenerateRequest) -> Answer:
            async with gate:
                return await self.generate(request)

        return await asyncio.gather(*(one(request) for request in requests))


def request(prompt: Sequence[int] | str, **fields: Any) -> generation_pb2.GenerateRequest:
    """A request for token ids or for the answer to a chat message."""
    if isinstance(prompt, str):
        message = generation_pb2.ChatMessage(role="user", content=prompt)
        kind = generation_pb2.Prompt(chat=generation_pb2.ChatMessages(messages=[message]))
    else:
        kind = generation_pb2.Prompt(token_ids=generation_pb2.TokenIds(ids=prompt))
    return generation_pb2.GenerateRequest(prompt=kind, **fields)


async def kv_blocks_used(address: str, stub: Any = verifier_pb2_grpc.VerifierStub) -> int:
    """Of a verifier or, with `DrafterStub`, a drafter."""
    async with grpc.aio.insecure_channel(address) as channel:
        info = await stub(channel).GetModel(exchange_pb2.GetModelRequest(), timeout=10)
        used: int = info.kv_blocks_used
        return used


async def eventually(condition: Any, seconds: float = 5.0) -> None:
    """Awaits the condition (an async callable) until true; fails after `seconds`."""
    async with asyncio.timeout(seconds):
        while not await condition():
            await asyncio.sleep(0.05)


def hashed_keys(tenants: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """As tenants.yaml lists them, each with its name as its key."""
    return [{"key_sha256": [hashlib.sha256(tenant["name"].encode()).hexdigest()], **tenant} for tenant in tenants]


def _module(name: str) -> list[str]:
    return [sys.executable, "-m", *name.split()]
