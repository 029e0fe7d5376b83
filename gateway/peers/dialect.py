"""What a link must know of its kind of peer, and who receives what comes in. Knows no stream and no message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeVar

import grpc
from google.protobuf.message import Message

from slipstream.exchange import ModelInfo, StepReport
from slipstream.request import SequenceRequest


class Receiver(Protocol):
    """Receives what comes in about one sequence on one link."""

    def on_failure(self, error: Exception) -> None:
        """The peer ended this sequence."""

    def on_down(self) -> None:
        """The peer is gone, and with it everything opened on it."""


ReceiverT = TypeVar("ReceiverT", bound=Receiver)
ItemT = TypeVar("ItemT")
ReceiverT_contra = TypeVar("ReceiverT_contra", bound=Receiver, contravariant=True)
ItemT_contra = TypeVar("ItemT_contra", contravariant=True)


class Dialect(Protocol[ReceiverT_contra, ItemT_contra]):
    """What a link says to its kind of peer."""

    name: str  # for logs

    async def describe(self, channel: grpc.aio.Channel) -> ModelInfo:
        """What the peer serves; fetches whatever else is needed before sequences can be opened."""

    def start(self, channel: grpc.aio.Channel) -> Any:
        """Begins the bidirectional stream."""

    def messages(
        self, closes: Iterable[int], opens: Iterable[SequenceRequest], items: Iterable[ItemT_contra]
    ) -> Iterable[Message]:
        """All that was sent since the last time, in as few messages as possible and in this order."""

    def dispatch(self, message: Any, receivers: Mapping[int, ReceiverT_contra]) -> StepReport | None:
        """Hands one received message to those it concerns; returns how full the peer is, if it says so."""
