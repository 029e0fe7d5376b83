"""Asks one service of any kind how it is and what it holds. Knows health and GetModel; starts nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from slipstream.exchange import ModelInfo
from slipstream.wire.channel import open_blocking_channel
from slipstream.wire.model_info import model_info_from_wire
from slipstream.wire.tls import ClientTls
from slipstream.wire.v1 import (
    drafter_pb2,
    drafter_pb2_grpc,
    exchange_pb2,
    generation_pb2,
    verifier_pb2,
    verifier_pb2_grpc,
)

SERVING: Final = "SERVING"
UNREACHABLE: Final = "UNREACHABLE"
KINDS: Final = {
    "verifier": verifier_pb2.DESCRIPTOR.services_by_name["Verifier"].full_name,
    "drafter": drafter_pb2.DESCRIPTOR.services_by_name["Drafter"].full_name,
    "gateway": generation_pb2.DESCRIPTOR.services_by_name["Generation"].full_name,
}


class Peer:
    """One connection. What the service does not know, or does not say in time, raises grpc.RpcError."""

    def __init__(self, channel: grpc.Channel, seconds: float) -> None:
        self._channel = channel
        self._seconds = seconds

    def health(self, service: str = "", *, wait: bool = False) -> str:
        """SERVING or NOT_SERVING; with `wait`, of a server that may take the time allowed to come."""
        request = health_pb2.HealthCheckRequest(service=service)
        stub = health_pb2_grpc.HealthStub(self._channel)
        status = stub.Check(request, timeout=self._seconds, wait_for_ready=wait).status
        return str(health_pb2.HealthCheckResponse.ServingStatus.Name(status))

    def kind(self) -> str:
        """Which of KINDS it is; empty if none."""
        for kind, service in KINDS.items():
            with suppress(grpc.RpcError):
                self.health(service)
                return kind
        return ""

    def model(self, kind: str) -> ModelInfo:
        make_stub = {"verifier": verifier_pb2_grpc.VerifierStub, "drafter": drafter_pb2_grpc.DrafterStub}[kind]
        answer = make_stub(self._channel).GetModel(exchange_pb2.GetModelRequest(), timeout=self._seconds)
        return model_info_from_wire(answer)


@contextmanager
def connected(address: str, seconds: float, tls: ClientTls | None = None) -> Iterator[Peer]:
    with open_blocking_channel(address, tls) as channel:
        yield Peer(channel, seconds)


def capacity(info: ModelInfo) -> str:
    """How much the KV cache holds, and how many of the longest sequences at one time."""
    tokens = info.kv_blocks_total * info.kv_block_size
    sequences = tokens / info.max_model_len if info.max_model_len else 0.0
    return (
        f"{info.kv_blocks_total} KV blocks of {info.kv_block_size} tokens, "
        f"enough for {sequences:.1f} sequences of {info.max_model_len}"
    )
