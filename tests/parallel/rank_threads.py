"""Ranks as threads of the test's process, brought together by gloo: real collectives, no process to start."""

from __future__ import annotations

import pickle
import queue
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

import torch.distributed as dist

from slipstream.engine.model_runner import ModelRunner
from slipstream.engine.rank_runner import LeadingRunner, take
from slipstream.engine.rank_steps import SendStep, Step, send_nowhere
from slipstream.parallel.all_reduce import GroupAllReduce
from slipstream.parallel.ranks import RankGroup

SECONDS = 20
Result = TypeVar("Result")
MakeRunner = Callable[[RankGroup, SendStep], ModelRunner]


def on_ranks(size: int, run: Callable[[RankGroup], Result]) -> list[Result]:
    """What `run` returned on each rank; an exception on one is raised here."""
    store = dist.HashStore()
    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(_on_rank, store, rank, size, run) for rank in range(size)]
        return [future.result(timeout=SECONDS) for future in futures]


@contextmanager
def led(size: int, make: MakeRunner) -> Iterator[ModelRunner]:
    """Rank 0's runner; the others follow it in threads, and must have come as far when the block ends."""
    store, inboxes = dist.HashStore(), [queue.SimpleQueue[bytes]() for _ in range(size - 1)]

    def send(step: Step | None) -> None:
        for inbox in inboxes:
            inbox.put(pickle.dumps(step))

    def follow(rank: int) -> Callable[[RankGroup], None]:
        def run(ranks: RankGroup) -> None:
            runner = make(ranks, send_nowhere)
            while (step := pickle.loads(inboxes[rank - 1].get(timeout=SECONDS))) is not None:
                take(runner, step)

        return run

    with ThreadPoolExecutor(size) as pool:
        futures: list[Future[None]] = [
            pool.submit(_on_rank, store, rank, size, follow(rank)) for rank in range(1, size)
        ]
        inner = _on_rank(store, 0, size, lambda ranks: make(ranks, send))
        try:
            yield LeadingRunner(inner, send, lambda error: error)
        finally:
            send(None)
            for future in futures:
                future.result(timeout=SECONDS)


def _on_rank(store: dist.Store, rank: int, size: int, run: Callable[[RankGroup], Result]) -> Result:
    group = dist.ProcessGroupGloo(store, rank, size, timedelta(seconds=SECONDS))
    return run(RankGroup(group, GroupAllReduce(group)))
