"""Brings the processes of one model together. Knows torch.distributed and devices; not what the ranks will do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store, TCPStore

from slipstream.config import EngineConfig
from slipstream.parallel.all_reduce import make_all_reduce
from slipstream.parallel.ranks import RankGroup

STEP_SECONDS = 300.0  # of one exchange, which may have to wait while another rank compiles kernels
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where one process stands among those of its model."""

    rank: int
    size: int
    local_rank: int  # on its machine; also the number of its GPU
    one_machine: bool

    def own(self, config: EngineConfig) -> EngineConfig:
        """The configuration of this process alone, with its device."""
        device = f"cuda:{self.local_rank}" if config.device == "cuda" else config.device
        return replace(config, device=device, tensor_parallel_size=1)


def make_store(num_ranks: int) -> TCPStore:
    """Rank 0's meeting point on this machine, at a port of its own."""
    return TCPStore(LOOPBACK, 0, num_ranks, is_master=True, wait_for_workers=False, timeout=_seconds())


def join(place: Place, config: EngineConfig, store: Store | None) -> RankGroup:
    """Returns when all ranks are there; `store` is where they meet, None = where torchrun says."""
    device = torch.device(place.own(config).device)
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group(
        "nccl" if on_gpu else "gloo",
        store=store,
        rank=place.rank if store is not None else -1,
        world_size=place.size if store is not None else -1,
        timeout=_seconds(),
        device_id=device if on_gpu else None,
    )
    group = dist.group.WORLD
    assert group is not None
    ranks = RankGroup(group, make_all_reduce(config.all_reduce, group, device, place.one_machine))
    ranks.gather(torch.zeros(1, 1, device=device))  # nobody is here before all are
    return ranks


def leave() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def _seconds() -> timedelta:
    return timedelta(seconds=STEP_SECONDS)
