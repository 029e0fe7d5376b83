"""Runs a ghz configuration with our own client: the same load where ghz is not to be had. Prints figures.

    python -m bench.load loadtest/unary.json [--target HOST:PORT] [--api-key KEY]

Each line tells rate, answers by status, and the 50th, 95th and 99th percentile of whole calls; of a stream also of the
time to its first message. With a schedule of steps requests come at their times, whether answers come or not.
"""

from __future__ import annotations

import argparse
import asyncio
import platform
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from google.protobuf import message_factory

from bench.ghz_config import LoadConfig, load_config
from slipstream.wire.channel import open_channel


@dataclass(slots=True)
class Tally:
    """What came of the requests of one stretch of time."""

    name: str
    began: float = field(default_factory=time.perf_counter)
    statuses: Counter[str] = field(default_factory=Counter)
    calls: list[float] = field(default_factory=list)  # seconds, of those answered
    firsts: list[float] = field(default_factory=list)  # seconds to the first message of a stream

    def line(self) -> str:
        elapsed = time.perf_counter() - self.began
        told = f"{self.name}: {self.statuses.total() / elapsed:.1f} requests/s, {dict(self.statuses)}"
        told += f", call {_percentiles(self.calls)}"
        return told + (f", first message {_percentiles(self.firsts)}" if self.firsts else "")


class Caller:
    def __init__(self, channel: grpc.aio.Channel, config: LoadConfig) -> None:
        self._config = config
        self._numbers = count()
        streams = config.method.server_streaming
        make = channel.unary_stream if streams else channel.unary_unary
        parse = message_factory.GetMessageClass(config.method.output_type).FromString
        call: Callable[..., Any] = make(config.path, lambda message: message.SerializeToString(), parse)
        self._call, self._read = call, _each if streams else _one

    async def ask(self, tally: Tally) -> None:
        """One request. A refusal is counted by its status."""
        began, first = time.perf_counter(), 0.0
        request = self._config.request(next(self._numbers))
        try:
            answer = self._call(request, timeout=self._config.timeout, metadata=self._config.metadata)
            async for _ in self._read(answer):
                first = first or time.perf_counter() - began
        except grpc.aio.AioRpcError as error:
            tally.statuses[error.code().name] += 1
            return
        tally.statuses["OK"] += 1
        tally.calls.append(time.perf_counter() - began)
        if self._config.method.server_streaming:
            tally.firsts.append(first)


async def run_load(config: LoadConfig, tell: Callable[[str], None] = print) -> list[Tally]:
    """A tally for each step, or one if there are none."""
    async with open_channel(config.host) as channel:
        caller = Caller(channel, config)
        if config.steps:
            return await _by_schedule(caller, config, tell)
        tally = Tally(f"{config.concurrency} at one time")
        left = iter(range(config.total))
        async with asyncio.TaskGroup() as tasks:
            for _ in range(config.concurrency):
                tasks.create_task(_ask_each(caller, left, tally))
        tell(tally.line())
        return [tally]


async def _ask_each(caller: Caller, left: Any, tally: Tally) -> None:
    for _ in left:
        await caller.ask(tally)


async def _by_schedule(caller: Caller, config: LoadConfig, tell: Callable[[str], None]) -> list[Tally]:
    gate, tallies, left = asyncio.Semaphore(config.concurrency), [], config.total
    for step in config.steps:
        tally = Tally(f"{step.rate:g} requests/s asked")
        number = min(left, round(step.rate * step.seconds))
        left -= number
        async with asyncio.TaskGroup() as tasks:
            for index in range(number):
                await asyncio.sleep(max(0.0, tally.began + index / step.rate - time.perf_counter()))
                tasks.create_task(_ask_within(gate, caller, tally))
        tallies.append(tally)
        tell(tally.line())
    return tallies


async def _ask_within(gate: asyncio.Semaphore, caller: Caller, tally: Tally) -> None:
    async with gate:
        await caller.ask(tally)


async def _one(answer: Any) -> AsyncIterator[Any]:
    yield await answer


async def _each(answer: Any) -> AsyncIterator[Any]:
    async for message in answer:
        yield message


def _percentiles(values: list[float]) -> str:
    if not values:
        return "-"
    return " / ".join(f"{value * 1e3:.1f}" for value in np.percentile(values, (50, 95, 99))) + " ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("--target", default="", help="host:port in place of the configuration's")
    parser.add_argument("--api-key", default="")
    options = parser.parse_args()
    config = load_config(options.config)
    if options.target:
        config = replace(config, host=options.target)
    if options.api_key:
        config = replace(config, metadata=(*config.metadata, ("authorization", f"Bearer {options.api_key}")))
    print(f"{config.path} of {config.host}, asked from {platform.node()}")
    with suppress(KeyboardInterrupt):
        asyncio.run(run_load(config))


if __name__ == "__main__":
    main()
