"""Features as they travel, in messages of bounded size. Knows lengths; not what features mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from slipstream.exchange import Features, FeaturesWanted
from slipstream.wire.v1 import exchange_pb2 as pb

MAX_BATCH_BYTES: Final = 256 << 10


def features_to_wire(features: Features) -> pb.Features:
    return pb.Features(sequence_id=features.sequence_id, start=features.start, data=features.data)


def features_from_wire(message: pb.Features) -> Features:
    return Features(message.sequence_id, message.start, message.data)


def wanted_to_wire(wanted: FeaturesWanted) -> pb.FeaturesWanted:
    return pb.FeaturesWanted(sequence_id=wanted.sequence_id, start=wanted.start)


def wanted_from_wire(message: pb.FeaturesWanted) -> FeaturesWanted:
    return FeaturesWanted(message.sequence_id, message.start)


def feature_batches(messages: Iterable[pb.Features]) -> Iterator[pb.FeatureBatch]:
    """The messages in their order, as few batches as the bound allows."""
    batch, num_bytes = pb.FeatureBatch(), 0
    for message in messages:
        if batch.features and num_bytes + len(message.data) > MAX_BATCH_BYTES:
            yield batch
            batch, num_bytes = pb.FeatureBatch(), 0
        batch.features.append(message)
        num_bytes += len(message.data)
    if batch.features:
        yield batch
