"""Twice as many requests as can be served: what the admitted ones feel, and what the services hold. Prints figures.

    python bench/overload.py [--model DIR] [--seconds 600] [--json]

Verifier and gateway run as real processes. First as many clients as the batch has places ask again and again: that is
capacity, and its rate. Then requests arrive at random at twice that rate, whatever becomes of them. It must show:
memory flat, the line bounded, p99 of the admitted requests' time per output token at most 1.3 times that at capacity.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import random
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import grpc
from prometheus_client.parser import text_string_to_metric_families

from launcher.processes import Processes, ServiceProcess
from slipstream.config import default_model_dir, service_environment
from slipstream.wire.channel import open_channel
from slipstream.wire.v1 import generation_pb2 as pb
from slipstream.wire.v1 import generation_pb2_grpc as rpc

TPOT_BOUND = 1.3  # overloaded / at capacity, p99
MEMORY_BOUND = 1.05  # at the end / after a quarter of the time
BLOCK_SIZE = 16  # tokens
SPARE = 2  # requests that wait at the verifier, so that a place in the batch is never empty
SERVICES = ("gateway", "verifier")
MEMORY, QUEUED, RUNNING = "process_resident_memory_bytes", "slipstream_queued_requests", "slipstream_running_requests"


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    model: Path
    seconds: float = 600.0  # of overload
    capacity_seconds: float = 60.0  # of capacity, before it
    num_places: int = 8  # of the batch, hence clients at capacity
    max_queued: int = 16
    num_prompt_tokens: int = 32
    num_tokens: int = 32  # of each answer
    factor: float = 2.0
    seed: int = 0

    @property
    def num_kv_blocks(self) -> int:
        """Few enough to be all written soon: memory of the cache that nobody wrote does not count as used."""
        return 4 * self.num_places * -(-(self.num_prompt_tokens + self.num_tokens) // BLOCK_SIZE)


@dataclass(slots=True)
class Felt:
    """What clients felt."""

    num_admitted: int = 0
    refused: Counter[str] = field(default_factory=Counter)  # by status
    first_token_seconds: list[float] = field(default_factory=list)
    output_token_seconds: list[float] = field(default_factory=list)
    retry_after_ms: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Held:
    """What the services held, second by second."""

    memory: dict[str, list[float]] = field(default_factory=lambda: {service: [] for service in SERVICES})
    queued: list[float] = field(default_factory=list)
    running: list[float] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    requests_per_second_at_capacity: float
    requests_per_second_served: float  # under overload
    tpot_p50_ms: tuple[float, float]  # at capacity, overloaded
    tpot_p99_ms: tuple[float, float]
    first_token_p99_ms: tuple[float, float]
    num_admitted: int
    num_refused: dict[str, int]
    retry_after_p50_ms: float
    most_queued: float
    most_running: float
    memory_mib: dict[str, tuple[float, float]]  # after a quarter of the time, at the end

    @property
    def tpot_ratio(self) -> float:
        return self.tpot_p99_ms[1] / self.tpot_p99_ms[0]

    @property
    def memory_ratio(self) -> float:
        return max(last / early for early, last in self.memory_mib.values())


class Load:
    """Sends requests and notes what becomes of them."""

    def __init__(self, stub: rpc.GenerationAsyncStub, setting: Setting) -> None:
        self._stub = stub
        self._setting = setting
        self._random = random.Random(setting.seed)

    async def at_capacity(self) -> tuple[Felt, float]:
        """Also the requests served per second."""
        felt, started = Felt(), time.monotonic()
        until = started + self._setting.capacity_seconds

        async def client() -> None:
            while time.monotonic() < until:
                await self._one(felt)

        await asyncio.gather(*(client() for _ in range(self._setting.num_places)))
        return felt, felt.num_admitted / (time.monotonic() - started)

    async def overloaded(self, per_second: float) -> tuple[Felt, float]:
        """Arrivals of a Poisson process; nobody tries again, nobody waits for anybody."""
        felt, started = Felt(), time.monotonic()
        arrival = started
        async with asyncio.TaskGroup() as requests:
            while arrival < started + self._setting.seconds:
                arrival += self._random.expovariate(per_second)
                await asyncio.sleep(max(0.0, arrival - time.monotonic()))
                requests.create_task(self._one(felt))
        return felt, felt.num_admitted / (time.monotonic() - started)

    async def _one(self, felt: Felt) -> None:
        asked, first, count = time.monotonic(), 0.0, 0
        try:
            async for message in self._stub.Generate(self._request()):
                last = time.monotonic()
                if not count:
                    first, num_first = last, len(message.token_ids)
                count += len(message.token_ids)
        except grpc.aio.AioRpcError as error:
            _note_refusal(felt, error)
            return
        felt.num_admitted += 1
        felt.first_token_seconds.append(first - asked)
        if count > num_first:
            felt.output_token_seconds.append((last - first) / (count - num_first))

    def _request(self) -> pb.GenerateRequest:
        ids = [self._random.randrange(3, 300) for _ in range(self._setting.num_prompt_tokens)]
        prompt = pb.Prompt(token_ids=pb.TokenIds(ids=ids))
        return pb.GenerateRequest(prompt=prompt, max_tokens=self._setting.num_tokens, temperature=0, ignore_eos=True)


def _note_refusal(felt: Felt, error: grpc.aio.AioRpcError) -> None:
    felt.refused[error.code().name] += 1
    felt.retry_after_ms += [int(value) for key, value in error.trailing_metadata() or () if key == "retry-after-ms"]


async def watch(metrics: dict[str, str], held: Held) -> None:
    """Until cancelled."""
    while True:
        for service in SERVICES:
            values = await asyncio.to_thread(_scrape, metrics[service])
            held.memory[service].append(values[MEMORY])
            if service == "gateway":
                held.queued.append(values[QUEUED])
                held.running.append(values[RUNNING])
        await asyncio.sleep(1.0)


def _scrape(address: str) -> dict[str, float]:
    """What has no labels."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as reply:
        families = text_string_to_metric_families(str(reply.read(), "utf-8"))
        return {sample.name: sample.value for family in families for sample in family.samples if not sample.labels}


def measure(setting: Setting) -> Result:
    with Processes() as processes:

        def start(name: str, *command: str) -> ServiceProcess:
            addresses = ("--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--log-level", "warning")
            service = processes.start(name, [sys.executable, "-m", *command, *addresses], service_environment(1))
            processes.wait_ready(service)
            return service

        room = ("--max-num-seqs", str(setting.num_places), "--num-kv-blocks", str(setting.num_kv_blocks))
        verifier = start("verifier", "verifier_svc", "--model", str(setting.model), *room)
        limits = ("--max-running", str(setting.num_places + SPARE), "--max-queued", str(setting.max_queued))
        gateway = start("gateway", "gateway", "--verifier", verifier.address, *limits)
        metrics = {"verifier": verifier.metrics_address, "gateway": gateway.metrics_address}
        return asyncio.run(_measure(setting, gateway.address, metrics))


async def _measure(setting: Setting, gateway: str, metrics: dict[str, str]) -> Result:
    held = Held()
    async with open_channel(gateway) as channel:
        load = Load(rpc.GenerationStub(channel), setting)
        calm, capacity = await load.at_capacity()
        watcher = asyncio.create_task(watch(metrics, held))
        try:
            busy, served = await load.overloaded(setting.factor * capacity)
        finally:
            watcher.cancel()
            with suppress(asyncio.CancelledError):
                await watcher
    return _result((calm, capacity), (busy, served), held)


def _result(at_capacity: tuple[Felt, float], overloaded: tuple[Felt, float], held: Held) -> Result:
    (calm, capacity), (busy, served) = at_capacity, overloaded
    return Result(
        requests_per_second_at_capacity=capacity,
        requests_per_second_served=served,
        tpot_p50_ms=(_ms(calm.output_token_seconds, 0.5), _ms(busy.output_token_seconds, 0.5)),
        tpot_p99_ms=(_ms(calm.output_token_seconds, 0.99), _ms(busy.output_token_seconds, 0.99)),
        first_token_p99_ms=(_ms(calm.first_token_seconds, 0.99), _ms(busy.first_token_seconds, 0.99)),
        num_admitted=busy.num_admitted,
        num_refused=dict(busy.refused),
        retry_after_p50_ms=quantile(busy.retry_after_ms, 0.5),
        most_queued=max(held.queued),
        most_running=max(held.running),
        memory_mib={name: (one[len(one) // 4] / 2**20, one[-1] / 2**20) for name, one in held.memory.items()},
    )


def quantile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def _ms(seconds: Iterable[float], share: float) -> float:
    return quantile(seconds, share) * 1e3


def show(setting: Setting, result: Result) -> None:
    print(f"{platform.machine()}, {setting.model.name}, {setting.num_places} places, {setting.seconds:g} s of overload")
    print(f"capacity {result.requests_per_second_at_capacity:.2f} requests/s; served at {setting.factor:g} x as many: "
          f"{result.requests_per_second_served:.2f}")  # fmt: skip
    for name, (calm, busy) in (
        ("time per output token, p50", result.tpot_p50_ms),
        ("time per output token, p99", result.tpot_p99_ms),
        ("time to first token, p99", result.first_token_p99_ms),
    ):
        print(f"{name:28} {calm:9.1f} ms at capacity {busy:9.1f} ms overloaded  x {busy / calm:.2f}")
    print(f"admitted {result.num_admitted}, refused {result.num_refused}, retry after {result.retry_after_p50_ms:g} ms")
    print(f"at most {result.most_running:g} running, {result.most_queued:g} of {setting.max_queued} in line")
    for name, (early, last) in result.memory_mib.items():
        print(f"memory of {name:10} {early:8.1f} MiB after a quarter {last:8.1f} MiB at the end  x {last / early:.3f}")
    print(f"bounds: p99 x {TPOT_BOUND} {_verdict(result.tpot_ratio <= TPOT_BOUND)}, "
          f"memory x {MEMORY_BOUND} {_verdict(result.memory_ratio <= MEMORY_BOUND)}")  # fmt: skip


def _verdict(holds: bool) -> str:
    return "holds" if holds else "BROKEN"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=default_model_dir() / "smollm2-135m-instruct")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--capacity-seconds", type=float, default=60.0)
    parser.add_argument("--places", type=int, default=8)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    setting = Setting(
        model=asked.model, seconds=asked.seconds, capacity_seconds=asked.capacity_seconds, num_places=asked.places
    )
    result = measure(setting)
    if asked.json:
        print(json.dumps(asdict(result) | {"tpot_ratio": result.tpot_ratio, "memory_ratio": result.memory_ratio}))
    else:
        show(setting, result)


if __name__ == "__main__":
    main()
