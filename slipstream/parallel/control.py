"""How rank 0's words reach the other ranks, whatever they say. Knows bytes; the ring of one machine is in ring.py."""

from __future__ import annotations

from typing import Protocol

import torch
import torch.distributed as dist


class Sender(Protocol):
    def send(self, message: bytes) -> None:
        """To all other ranks, in order."""


class Receiver(Protocol):
    def receive(self) -> bytes:
        """Waits for the next message."""


class Broadcast:
    """Both ends, for ranks on several machines: the length, then the message."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group

    def send(self, message: bytes) -> None:
        dist.broadcast(torch.tensor([len(message)]), group=self._group, group_src=0)
        if message:
            dist.broadcast(torch.frombuffer(bytearray(message), dtype=torch.uint8), group=self._group, group_src=0)

    def receive(self) -> bytes:
        length = torch.zeros(1, dtype=torch.int64)
        dist.broadcast(length, group=self._group, group_src=0)
        message = torch.empty(int(length), dtype=torch.uint8)
        if len(message):
            dist.broadcast(message, group=self._group, group_src=0)
        return message.numpy().tobytes()
