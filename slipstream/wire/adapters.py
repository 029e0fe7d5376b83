"""A drafter's adapters as messages and back. Knows no service."""

from __future__ import annotations

from slipstream.exchange import AdapterInfo, AdapterList
from slipstream.wire.v1 import drafter_pb2 as pb


def adapter_list_to_wire(held: AdapterList) -> pb.AdapterList:
    return pb.AdapterList(
        adapters=[
            pb.Adapter(
                name=info.name,
                path=info.path,
                rank=info.rank,
                num_sequences=info.num_sequences,
                draining=info.draining,
            )
            for info in held.adapters
        ],
        max_adapters=held.max_adapters,
        bytes_per_adapter=held.bytes_per_adapter,
    )


def adapter_list_from_wire(message: pb.AdapterList) -> AdapterList:
    return AdapterList(
        tuple(AdapterInfo(one.name, one.path, one.rank, one.num_sequences, one.draining) for one in message.adapters),
        message.max_adapters,
        message.bytes_per_adapter,
    )
