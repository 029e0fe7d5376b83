"""Rank 0's messages reach the other ranks by broadcast."""

from datetime import timedelta
from threading import Thread

import torch.distributed as dist

from slipstream.parallel.control import Broadcast


def test_messages_of_any_length_are_broadcast_in_order() -> None:
    store, messages, received = dist.HashStore(), [b"a step", b"", bytes(range(256)) * 1000], []

    def group(rank: int) -> Broadcast:
        return Broadcast(dist.ProcessGroupGloo(store, rank, 2, timedelta(seconds=20)))

    def receive() -> None:
        other = group(1)
        received.extend(other.receive() for _ in messages)

    thread = Thread(target=receive)
    thread.start()
    first = group(0)
    for message in messages:
        first.send(message)
    thread.join(timeout=20)
    assert received == messages
