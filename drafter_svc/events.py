"""The events that a drafter handles and the messages that it sends, as plain data. Knows no gRPC; does nothing."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from drafter_svc.adapters import AdapterAnswer, AdapterOrder
from slipstream.exchange import CommitBatch, DraftBatch, Features, SequenceFailure, Update
from slipstream.request import SequenceRequest

StreamId = int


@dataclass(frozen=True, slots=True)
class Opened:
    stream: StreamId
    request: SequenceRequest
    received: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class Updated:
    stream: StreamId
    update: Update


@dataclass(frozen=True, slots=True)
class Committed:
    stream: StreamId
    batch: CommitBatch
    received: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class FeaturesArrived:
    """The target's features of committed tokens."""

    stream: StreamId
    features: tuple[Features, ...]


@dataclass(frozen=True, slots=True)
class Closed:
    stream: StreamId
    sequence_id: int


@dataclass(frozen=True, slots=True)
class StreamEnded:
    stream: StreamId


@dataclass(frozen=True, slots=True)
class AdapterOrdered:
    """An order about adapters. Each comes from a call of its own, and the answer goes by the number of that call."""

    stream: StreamId
    order: AdapterOrder


Event = Opened | Updated | Committed | FeaturesArrived | Closed | StreamEnded | AdapterOrdered
Message = DraftBatch | SequenceFailure | AdapterAnswer
Output = list[tuple[StreamId, Message]]
