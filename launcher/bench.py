"""`slipstream bench`: several streams of requests against a gateway, measured at the client. Knows no service."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle, islice

import grpc

from launcher.bench_report import BenchReport, Sample
from launcher.client import authorization, chat_prompt, in_our_words
from launcher.prompt_file import Prompt
from launcher.request_options import RequestOptions, make_request
from slipstream.wire.channel import open_channel
from slipstream.wire.tls import ClientTls
from slipstream.wire.v1 import generation_pb2 as pb
from slipstream.wire.v1 import generation_pb2_grpc as rpc

MAX_COUNT = 100_000


@dataclass(frozen=True, kw_only=True, slots=True)
class BenchOptions:
    """How much is asked, and of whom. Raises ValueError naming field and value."""

    target: str  # the gateway
    streams: int = 1  # requests at one time
    requests: int = 1  # of each stream, one after another
    chat: bool = True  # through the chat template
    api_key: str = ""
    tls: ClientTls | None = None  # None: plaintext
    timeout: float = 300.0  # seconds, of one request
    request: RequestOptions = field(default_factory=RequestOptions)

    def __post_init__(self) -> None:
        for name in ("streams", "requests"):
            if not 1 <= getattr(self, name) <= MAX_COUNT:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be in 1..{MAX_COUNT}")


def run_bench(prompts: Sequence[Prompt], options: BenchOptions) -> BenchReport:
    """Prompts go round until every stream has asked its number; whoever is free takes the next one."""
    return asyncio.run(_bench(prompts, options))


async def _bench(prompts: Sequence[Prompt], options: BenchOptions) -> BenchReport:
    wanted = iter(list(requests(prompts, options)))
    report = BenchReport(num_streams=options.streams)
    async with open_channel(options.target, options.tls) as channel:
        caller = Caller(rpc.GenerationStub(channel), options)
        await caller.connect(channel)
        start = time.perf_counter()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(options.streams):
                tasks.create_task(caller.ask_each(wanted, report))
        report.seconds = time.perf_counter() - start
    return report


def requests(prompts: Sequence[Prompt], options: BenchOptions) -> Iterator[pb.GenerateRequest]:
    for prompt in islice(cycle(prompts), options.streams * options.requests):
        asked = chat_prompt(prompt.text) if options.chat else pb.Prompt(text=prompt.text)
        yield make_request(asked, options.request)


class Caller:
    """Asks and takes the time. A request that fails is counted and costs the others nothing."""

    def __init__(self, stub: rpc.GenerationStub, options: BenchOptions) -> None:
        self._stub = stub
        self._target = options.target
        self._timeout = options.timeout
        self._metadata = authorization(options.api_key)

    async def connect(self, channel: grpc.aio.Channel) -> None:
        """So that the first request is measured like the others. Raises Unavailable if nobody is there."""
        try:
            await self._stub.ListModels(pb.ListModelsRequest(), timeout=self._timeout, metadata=self._metadata)  # type: ignore[misc]
        except grpc.aio.AioRpcError as error:
            raise in_our_words(error, self._target) from error

    async def ask_each(self, requests: Iterable[pb.GenerateRequest], report: BenchReport) -> None:
        for request in requests:
            try:
                report.add(*await self._ask(request))
            except grpc.aio.AioRpcError as error:
                report.add_failure(f"{error.code().name}: {error.details()}")

    async def _ask(self, request: pb.GenerateRequest) -> tuple[Sample, pb.GenerateResponse]:
        start = time.perf_counter()
        first, num_tokens, last = 0.0, 0, pb.GenerateResponse()
        async for last in self._stub.Generate(request, timeout=self._timeout, metadata=self._metadata):  # type: ignore[attr-defined]
            if last.token_ids and not first:
                first, num_first = time.perf_counter(), len(last.token_ids)
            num_tokens += len(last.token_ids)
        end = time.perf_counter()
        decoded = num_tokens - num_first if first else 0
        return Sample(
            first_token_s=(first or end) - start, per_token_s=(end - first) / decoded if decoded else None
        ), last
