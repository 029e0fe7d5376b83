"""Ranks as threads of the test's process, brought together by gloo: real collectives, no process to start."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TypeVar

import torch.distributed as dist

from slipstream.parallel.all_reduce import GroupAllReduce
from slipstream.parallel.ranks import RankGroup

SECONDS = 60
Result = TypeVar("Result")


def on_ranks(size: int, run: Callable[[RankGroup], Result]) -> list[Result]:
    """What `run` returned on each rank; an exception on one is raised here."""
    store = dist.HashStore()
    with ThreadPoolExecutor(size) as pool:
        futures = [pool.submit(_on_rank, store, rank, size, run) for rank in range(size)]
        return [future.result(timeout=SECONDS) for future in futures]


def _on_rank(store: dist.Store, rank: int, size: int, run: Callable[[RankGroup], Result]) -> Result:
    group = dist.ProcessGroupGloo(store, rank, size, timedelta(seconds=SECONDS))
    return run(RankGroup(group, GroupAllReduce(group)))
