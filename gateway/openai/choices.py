"""All that is asked in one HTTP request, run together and returned as one stream. Knows the gateway; knows no JSON."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import dataclass, replace

from gateway.completion import Completion, Delta
from gateway.gateway import Gateway
from gateway.policy.tenants import Tenant


@dataclass(frozen=True, slots=True)
class Part:
    """What became final of one choice."""

    choice: int
    delta: Delta


async def run_choices(
    gateway: Gateway, tenant: Tenant, completions: Sequence[Completion]
) -> AsyncGenerator[Part, None]:
    """The parts of all choices as they come. One that fails ends all; leaving the iteration frees what they hold."""
    # No room to wait in: who reads slowly is the gateway's matter.
    queue: asyncio.Queue[Part | Exception | None] = asyncio.Queue(1)
    tasks = [
        asyncio.create_task(_run(gateway, tenant, completion, number, queue))
        for number, completion in enumerate(completions)
    ]
    try:
        num_running = len(tasks)
        while num_running:
            item = await queue.get()
            if isinstance(item, Exception):
                raise item
            if item is None:
                num_running -= 1
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _run(
    gateway: Gateway,
    tenant: Tenant,
    completion: Completion,
    number: int,
    queue: asyncio.Queue[Part | Exception | None],
) -> None:
    try:
        async with gateway.complete(tenant, completion, None) as running:
            async for delta in running.deltas:
                for part in _parts(delta, number * completion.n, completion.n):
                    await queue.put(part)
        await queue.put(None)
    except Exception as error:
        await queue.put(error)


def _parts(delta: Delta, first: int, num_samples: int) -> Iterator[Part]:
    """The prompt comes once, but it is the beginning of every sample's choice."""
    if delta.prompt is not None:
        for sample in range(num_samples):
            own = replace(delta.prompt, token_ids=list(delta.prompt.token_ids))  # each choice adds to its own
            yield Part(first + sample, Delta(prompt=own))
        delta = replace(delta, prompt=None)
    if delta.token_ids or delta.text or delta.usage:
        yield Part(first + delta.index, delta)
