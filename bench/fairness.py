"""One tenant floods the gateway: what another, which asks as it always does, feels of it. Prints figures.

    python -m bench.fairness [--model DIR] [--seconds 120] [--long] [--json]

Verifier and gateway run as real processes, with nothing in the policy but equal shares. The quiet one asks from a few
clients, each again when it has its answer, in three phases of equal length: alone; while the other asks as much as its
share holds; while the other floods, with many times as many clients, which ask again at once when they are refused. It
must show: the quiet one's p99 time per output token in the flood at most 1.3 times that beside a neighbour who keeps to
its share. What the neighbour's share itself costs shows against the quiet one alone: more sequences in a step take
longer. `--long` gives the other's requests long prompts, which cost more than the tokens after them.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import platform
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import grpc
import yaml

from launcher.processes import Processes, ServiceProcess
from slipstream.config import default_model_dir, service_environment
from slipstream.wire.channel import open_channel
from slipstream.wire.v1 import generation_pb2 as pb
from slipstream.wire.v1 import generation_pb2_grpc as rpc

TPOT_BOUND = 1.3  # in the flood / beside a neighbour who keeps to its share, p99
QUIET, LOUD = "quiet", "loud"
SHORT_PROMPT, LONG_PROMPT = 32, 512  # tokens
PHASES = ("alone", "neighbour", "flood")
PAUSE_SECONDS = 0.01  # of a flooding client after a refusal, or it would measure the client


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    model: Path
    seconds: float = 120.0  # of each phase
    num_places: int = 8
    num_flooding: int = 64  # clients
    num_prompt_tokens: int = SHORT_PROMPT
    num_loud_prompt_tokens: int = SHORT_PROMPT
    num_tokens: int = 32  # of each answer
    proposers: tuple[str, ...] = ("ngram",)
    seed: int = 0

    @property
    def share(self) -> int:
        """Places of each tenant."""
        return max(1, self.num_places // 2)

    @property
    def num_quiet(self) -> int:
        """Clients of the quiet tenant: half of its share, so that it never waits for itself."""
        return max(1, self.share // 2)

    def num_loud(self, phase: str) -> int:
        return {"alone": 0, "neighbour": self.share, "flood": self.num_flooding}[phase]


@dataclass(slots=True)
class Felt:
    """What one tenant's clients felt in one phase."""

    num_answers: int = 0
    refused: Counter[str] = field(default_factory=Counter)  # by status
    first_token_seconds: list[float] = field(default_factory=list)
    output_token_seconds: list[float] = field(default_factory=list)

    def summary(self) -> Summary:
        return Summary(
            num_answers=self.num_answers,
            num_refused=dict(self.refused),
            tpot_p50_ms=quantile(self.output_token_seconds, 0.5) * 1e3,
            tpot_p99_ms=quantile(self.output_token_seconds, 0.99) * 1e3,
            first_token_p99_ms=quantile(self.first_token_seconds, 0.99) * 1e3,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    num_answers: int
    num_refused: dict[str, int]
    tpot_p50_ms: float
    tpot_p99_ms: float
    first_token_p99_ms: float


Result = dict[str, dict[str, Summary]]  # phase -> tenant


class Tenant:
    """Asks as one tenant, whose key is its name."""

    def __init__(self, name: str, stub: rpc.GenerationAsyncStub, setting: Setting) -> None:
        self._metadata = (("authorization", f"Bearer {name}"),)
        self._stub = stub
        self._setting = setting
        self._num_prompt_tokens = setting.num_prompt_tokens if name == QUIET else setting.num_loud_prompt_tokens
        self._dice = random.Random(f"{name} {setting.seed}")

    async def ask_until(self, end: float, num_clients: int) -> Felt:
        felt = Felt()

        async def client() -> None:
            while time.monotonic() < end:
                await self._ask(felt)

        await asyncio.gather(*(client() for _ in range(num_clients)))
        return felt

    async def _ask(self, felt: Felt) -> None:
        asked, first, last, num_first, count = time.monotonic(), 0.0, 0.0, 0, 0
        try:
            async for message in self._stub.Generate(self._request(), metadata=self._metadata):
                last = time.monotonic()
                if not count:
                    first, num_first = last, len(message.token_ids)
                count += len(message.token_ids)
        except grpc.aio.AioRpcError as error:
            felt.refused[error.code().name] += 1
            await asyncio.sleep(PAUSE_SECONDS)
            return
        felt.num_answers += 1
        felt.first_token_seconds.append(first - asked)
        if count > num_first:
            felt.output_token_seconds.append((last - first) / (count - num_first))

    def _request(self) -> pb.GenerateRequest:
        ids = [self._dice.randrange(3, 300) for _ in range(self._num_prompt_tokens)]
        prompt = pb.Prompt(token_ids=pb.TokenIds(ids=ids))
        return pb.GenerateRequest(prompt=prompt, max_tokens=self._setting.num_tokens, temperature=0, ignore_eos=True)


def quantile(values: Iterable[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def measure(setting: Setting) -> Result:
    with Processes() as processes, tempfile.TemporaryDirectory() as folder:

        def start(name: str, *command: str) -> ServiceProcess:
            options = ("--listen", "127.0.0.1:0", "--log-level", "warning")
            service = processes.start(name, [sys.executable, "-m", *command, *options], service_environment(1))
            processes.wait_ready(service)
            return service

        room = ("--max-num-seqs", str(setting.num_places))
        verifier = start("verifier", "verifier_svc", "--model", str(setting.model), *room)
        limits = ("--max-queued", str(2 * setting.num_places))
        policies = ("--tenants", str(tenants_file(Path(folder), setting)))
        gateway = start("gateway", "gateway", "--verifier", verifier.address, *limits, *policies)
        return asyncio.run(_measure(setting, gateway.address))


def tenants_file(folder: Path, setting: Setting) -> Path:
    file = folder / "tenants.yaml"
    tenants = [
        {
            "name": name,
            "key_sha256": [hashlib.sha256(name.encode()).hexdigest()],
            "proposers": list(setting.proposers),
            "max_concurrent": 1 << 20,
        }
        for name in (QUIET, LOUD)
    ]
    file.write_text(yaml.safe_dump({"tenants": tenants}))
    return file


async def _measure(setting: Setting, gateway: str) -> Result:
    async with open_channel(gateway) as channel:
        stub = rpc.GenerationStub(channel)
        quiet, loud = Tenant(QUIET, stub, setting), Tenant(LOUD, stub, setting)
        await quiet.ask_until(time.monotonic() + setting.seconds / 10, setting.num_quiet)  # to warm up
        result = {}
        for phase in PHASES:
            end = time.monotonic() + setting.seconds
            felt = await asyncio.gather(
                quiet.ask_until(end, setting.num_quiet), loud.ask_until(end, setting.num_loud(phase))
            )
            result[phase] = {QUIET: felt[0].summary(), LOUD: felt[1].summary()}
        return result


def ratio(result: Result, phase: str, against: str) -> float:
    below = result[against][QUIET].tpot_p99_ms
    return result[phase][QUIET].tpot_p99_ms / below if below else float("inf")


def show(setting: Setting, result: Result) -> None:
    print(f"{platform.machine()}, {setting.model.name}, {setting.num_places} places, {setting.seconds:g} s a phase")
    print(f"clients: {setting.num_quiet} quiet, {setting.share} as a neighbour, {setting.num_flooding} flooding")
    print(f"{'phase':10} {'tenant':6} {'answers':>8} {'refused':>8} {'TPOT p50':>9} {'p99':>8} {'first p99':>10}   ms")
    for phase, by_tenant in result.items():
        for name, one in by_tenant.items():
            counts = f"{one.num_answers:8} {sum(one.num_refused.values()):8}"
            times = f"{one.tpot_p50_ms:9.1f} {one.tpot_p99_ms:8.1f} {one.first_token_p99_ms:10.1f}"
            print(f"{phase:10} {name:6} {counts} {times}")
    flood, alone = ratio(result, "flood", "neighbour"), ratio(result, "flood", "alone")
    verdict = "holds" if flood <= TPOT_BOUND else "BROKEN"
    print(f"quiet tenant's p99 in the flood: x {flood:.2f} of that beside a neighbour, x {alone:.2f} of that alone")
    print(f"bound: x {TPOT_BOUND} {verdict}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=default_model_dir() / "smollm2-135m-instruct")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--places", type=int, default=8)
    parser.add_argument("--flooding", type=int, default=64)
    parser.add_argument("--long", action="store_true", help=f"prompts of {LONG_PROMPT} tokens for the flooding tenant")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    setting = Setting(
        model=asked.model,
        seconds=asked.seconds,
        num_places=asked.places,
        num_flooding=asked.flooding,
        num_loud_prompt_tokens=LONG_PROMPT if asked.long else SHORT_PROMPT,
    )
    result = measure(setting)
    if asked.json:
        phases = {phase: {name: asdict(one) for name, one in of.items()} for phase, of in result.items()}
        print(json.dumps(phases | {"flood_ratio": ratio(result, "flood", "neighbour")}))
    else:
        show(setting, result)


if __name__ == "__main__":
    main()
