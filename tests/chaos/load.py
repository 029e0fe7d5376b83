"""Streams that are asked for again and again beside what a test breaks. Notes what each became; expects nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType

import grpc

from slipstream.wire.v1 import generation_pb2
from tests.e2e.cluster import Client, request

NUM_STREAMS = 8
RETRY_SECONDS = 0.1


def stream(index: int, num_tokens: int) -> generation_pb2.GenerateRequest:
    """A stream whose text depends on its seed only, if the tenant's mode is coupled."""
    return request([5 + index % 200, 6, 7], temperature=1.0, seed=index, max_tokens=num_tokens, ignore_eos=True)


@dataclass
class Load:
    """Runs while its context lasts; leaving it lets every stream come to its end."""

    client: Callable[[], Client]  # as the tenants in turn; a new one each time, it has no backoff to sit out
    requests: Sequence[generation_pb2.GenerateRequest]
    wanted: Sequence[Sequence[int]]  # token ids of each
    num_right: list[int] = field(default_factory=list)  # by stream
    failures: list[str] = field(default_factory=list)  # statuses, and texts that are not the wanted ones
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _stopping: bool = False

    async def __aenter__(self) -> Load:
        self._stopping = False
        self.num_right = [0] * len(self.requests)
        self._tasks = [asyncio.create_task(self._run(index)) for index in range(len(self.requests))]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        else:
            await self.finish()

    async def finish(self) -> None:
        self._stopping = True
        await asyncio.gather(*self._tasks)

    async def each_once_more(self, seconds: float) -> None:
        """Every stream has come to a right end since this was called."""
        before = list(self.num_right)
        async with asyncio.timeout(seconds):
            while not all(now > old for now, old in zip(self.num_right, before, strict=True)):
                await asyncio.sleep(0.02)

    async def _run(self, index: int) -> None:
        while not self._stopping:
            try:
                async with self.client() as client:
                    answer = await client.generate(self.requests[index])
            except grpc.aio.AioRpcError as error:
                self.failures.append(f"{error.code().name}: {error.details()}")
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if answer.token_ids == self.wanted[index]:
                self.num_right[index] += 1
            else:
                self.failures.append(f"stream {index} reads {answer.token_ids}, not {self.wanted[index]}")


async def start_load(
    calm: Client, client: Callable[[], Client], num_tokens: int, num_streams: int = NUM_STREAMS
) -> Load:
    """The load through `client`; what it should read is asked of `calm` before, one stream after another."""
    requests = [stream(index, num_tokens) for index in range(num_streams)]
    wanted = [(await calm.generate(one)).token_ids for one in requests]
    assert all(len(token_ids) == num_tokens for token_ids in wanted)
    return Load(client, requests, wanted)
