"""A recorded load, replayed as one tenant: chat, copied text, stories at T = 1.5. Knows the API; no service."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Final

import grpc

from launcher.client import chat_prompt
from launcher.request_options import RequestOptions, make_request
from slipstream.wire.channel import open_channel
from slipstream.wire.v1 import generation_pb2 as pb
from slipstream.wire.v1 import generation_pb2_grpc as rpc

MIXED_LOAD: Final = Path(__file__).with_name("prompts") / "mixed_load.jsonl"
PERIOD: Final = 6  # requests after which every kind has come twice


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
    kind: str
    prompt: str
    temperature: float
    max_tokens: int

    def request(self) -> pb.GenerateRequest:
        """Always of the same length. Without a seed: a tenant's requests that share one must not teach one another."""
        options = RequestOptions(temperature=self.temperature, max_tokens=self.max_tokens, ignore_eos=True)
        return make_request(chat_prompt(self.prompt), options)


def load_recorded(file: Path = MIXED_LOAD) -> list[Recorded]:
    return [Recorded(**json.loads(line)) for line in file.read_text().splitlines()]


def stretch(recorded: Sequence[Recorded], streams: int, rounds: float) -> list[Recorded]:
    """As many of them as so many streams take up `rounds` times, in whole periods."""
    periods = math.ceil(streams * rounds / PERIOD)
    return list(islice(cycle(recorded), periods * PERIOD))


@dataclass(slots=True)
class Replayed:
    """What came until the recorded requests ran out, those of which a part had come included."""

    num_tokens: int = 0
    seconds: float = 0.0
    failures: Counter[str] = field(default_factory=Counter)

    @property
    def tokens_per_second(self) -> float:
        return self.num_tokens / self.seconds if self.seconds else 0.0

    def add(self, other: Replayed) -> None:
        self.num_tokens += other.num_tokens
        self.seconds += other.seconds
        self.failures.update(other.failures)


async def replay(gateway: str, api_key: str, load: Sequence[Recorded], streams: int) -> Replayed:
    """Each stream takes the next request when it has its answer; all end when one finds none left.

    So the last answers, which come to ever fewer streams, count for nothing.
    """
    replayed, left, ran_out = Replayed(), iter(load), asyncio.Event()
    metadata = (("authorization", f"Bearer {api_key}"),)

    async def stream(stub: rpc.GenerationStub) -> None:
        try:
            for recorded in left:
                await _ask(stub, recorded, metadata, replayed)
        finally:
            ran_out.set()

    async with open_channel(gateway) as channel:
        began = time.perf_counter()
        tasks = [asyncio.create_task(stream(rpc.GenerationStub(channel))) for _ in range(streams)]
        await ran_out.wait()
        replayed.seconds = time.perf_counter() - began
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return replayed


async def _ask(
    stub: rpc.GenerationStub, recorded: Recorded, metadata: tuple[tuple[str, str], ...], replayed: Replayed
) -> None:
    try:
        async for message in stub.Generate(recorded.request(), metadata=metadata):  # type: ignore[attr-defined]
            replayed.num_tokens += len(message.token_ids)
    except grpc.aio.AioRpcError as error:
        replayed.failures[f"{error.code().name}: {error.details()}"] += 1
