"""Sums a tensor over all ranks. Knows process groups; not what is summed; the symmetric way is beside it."""

from __future__ import annotations

from typing import Protocol

import torch
import torch.distributed as dist

SYMMETRIC = "symmetric"


class AllReduce(Protocol):
    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of every rank's x, the same bits on each. May overwrite x; a graph can hold it."""


class GroupAllReduce:
    """By torch.distributed: gloo on CPUs, NCCL on GPUs, on one machine or several."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        dist.all_reduce(x, group=self._group)
        return x


def make_all_reduce(method: str, group: dist.ProcessGroup, device: torch.device, one_machine: bool) -> AllReduce:
    """`method` is one of ALL_REDUCE_METHODS of config. Where GPUs are not of one machine, the group sums."""
    plain = GroupAllReduce(group)
    if method == SYMMETRIC and device.type == "cuda" and one_machine:
        from slipstream.parallel.symmetric import SymmetricAllReduce  # its operators exist where CUDA does

        return SymmetricAllReduce(group, device, plain)
    return plain
