"""Features go out as they came, in their order, and no message is longer than allowed."""

from __future__ import annotations

from slipstream.exchange import Features, FeaturesWanted
from slipstream.wire.features import (
    MAX_BATCH_BYTES,
    feature_batches,
    features_from_wire,
    features_to_wire,
    wanted_from_wire,
    wanted_to_wire,
)


def test_what_goes_in_comes_out() -> None:
    features, wanted = Features(7, 3, b"\x01\x02\x03\x04"), FeaturesWanted(7, 3)
    assert features_from_wire(features_to_wire(features)) == features
    assert wanted_from_wire(wanted_to_wire(wanted)) == wanted


def test_batches_hold_as_much_as_they_may_in_the_order_given() -> None:
    sizes = [MAX_BATCH_BYTES, 1000, MAX_BATCH_BYTES - 1000, 1, 5]
    messages = [features_to_wire(Features(i, 0, bytes(size))) for i, size in enumerate(sizes)]
    batches = list(feature_batches(messages))
    assert [[message.sequence_id for message in batch.features] for batch in batches] == [[0], [1, 2], [3, 4]]
    assert not list(feature_batches([]))
