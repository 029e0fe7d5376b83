"""What the ranks of one model say to one another while they compute. Knows tensors; nothing of layers or steps."""

from __future__ import annotations

from typing import Protocol

import torch
import torch.distributed as dist

from slipstream.parallel.all_reduce import AllReduce
from slipstream.parallel.shard import Shard


class Ranks(Protocol):
    """Every rank calls the same methods in the same order with tensors of the same shapes."""

    @property
    def shard(self) -> Shard:
        """This rank's part."""

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of every rank's x; may overwrite it."""

    def gather(self, x: torch.Tensor) -> torch.Tensor:
        """[rows, n, ...] of each rank side by side, in the order of ranks: [rows, size * n, ...]."""


class Alone:
    """A model that one process holds whole."""

    shard = Shard()

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def gather(self, x: torch.Tensor) -> torch.Tensor:
        return x


class RankGroup:
    """Ranks that torch.distributed has brought together."""

    def __init__(self, group: dist.ProcessGroup, all_reduce: AllReduce) -> None:
        self.shard = Shard(group.rank(), group.size())
        self._group = group
        self._all_reduce = all_reduce

    def sum(self, x: torch.Tensor) -> torch.Tensor:
        return self._all_reduce(x)

    def gather(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        parts = [torch.empty_like(x) for _ in range(self.shard.size)]
        dist.all_gather(parts, x, group=self._group)
        return torch.cat(parts, 1)


ALONE = Alone()
