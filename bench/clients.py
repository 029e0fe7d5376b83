"""Streams of requests to a gateway for so many seconds, and what they felt. Knows the Generation API; no service."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import cycle

import grpc

from launcher.client import chat_prompt
from launcher.figures import Figures
from launcher.request_options import RequestOptions, make_request
from slipstream.wire.channel import open_channel
from slipstream.wire.v1 import generation_pb2 as pb
from slipstream.wire.v1 import generation_pb2_grpc as rpc

Metadata = tuple[tuple[str, str], ...]


@dataclass(slots=True)
class Felt:
    """By all streams. Requests that the end of the time cut short count with the tokens that had come."""

    seconds: float = 0.0
    num_tokens: int = 0
    num_answers: int = 0  # whole ones
    first_token_seconds: list[float] = field(default_factory=list)
    output_token_seconds: list[float] = field(default_factory=list)  # a request's mean after its first message
    num_decoded: int = 0  # tokens after the first message of their request
    decode_seconds: float = 0.0  # in which these came, over all requests
    figures: Figures = field(default_factory=Figures)  # of whole answers
    failures: Counter[str] = field(default_factory=Counter)

    @property
    def tokens_per_second(self) -> float:
        return self.num_tokens / self.seconds if self.seconds else 0.0

    def decode_rate(self, streams: int) -> float:
        """Tokens a second of so many streams, their prompts left out."""
        return streams * self.num_decoded / self.decode_seconds if self.decode_seconds else 0.0


async def ask_for(
    gateway: str, api_key: str, prompts: Sequence[str], options: RequestOptions, *, streams: int, seconds: float
) -> Felt:
    """Each stream asks one prompt after another until the time is up; a failure ends its stream."""
    felt = Felt()
    await ask_into(felt, gateway, api_key, requests(prompts, options), streams=streams, seconds=seconds)
    return felt


async def ask_into(
    felt: Felt, gateway: str, api_key: str, left: Iterator[pb.GenerateRequest], *, streams: int, seconds: float
) -> None:
    """The same, for callers that watch meanwhile."""
    metadata = (("authorization", f"Bearer {api_key}"),)
    async with open_channel(gateway) as channel:
        stub = rpc.GenerationStub(channel)
        began = time.perf_counter()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds), asyncio.TaskGroup() as tasks:
                for _ in range(streams):
                    tasks.create_task(_stream(stub, left, metadata, felt))
        felt.seconds = time.perf_counter() - began


def requests(prompts: Sequence[str], options: RequestOptions) -> Iterator[pb.GenerateRequest]:
    """Without end."""
    for prompt in cycle(prompts):
        yield make_request(chat_prompt(prompt), options)


async def _stream(stub: rpc.GenerationStub, left: Iterator[pb.GenerateRequest], metadata: Metadata, felt: Felt) -> None:
    try:
        for request in left:
            await _ask(stub, request, metadata, felt)
    except grpc.aio.AioRpcError as error:
        felt.failures[f"{error.code().name}: {error.details()}"] += 1


async def _ask(stub: rpc.GenerationStub, request: pb.GenerateRequest, metadata: Metadata, felt: Felt) -> None:
    began = time.perf_counter()
    first, last, num_after = 0.0, 0.0, 0
    message = pb.GenerateResponse()
    try:
        async for message in stub.Generate(request, metadata=metadata):  # type: ignore[attr-defined]
            if not message.token_ids:
                continue
            last = time.perf_counter()
            felt.num_tokens += len(message.token_ids)
            if first:
                num_after += len(message.token_ids)
            else:
                first = last
                felt.first_token_seconds.append(first - began)
    finally:
        if num_after:
            felt.output_token_seconds.append((last - first) / num_after)
            felt.num_decoded += num_after
            felt.decode_seconds += last - first
    felt.num_answers += 1
    felt.figures.add(message.usage, message.timings)
