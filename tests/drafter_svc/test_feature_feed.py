"""Features count once they are here without a gap, whatever the order they come in."""

from __future__ import annotations

import numpy as np
import pytest

from drafter_svc.feature_feed import FeatureFeed
from slipstream.errors import InvalidRequest
from slipstream.exchange import Features

SIZE = 2


def features(start: int, end: int) -> Features:
    rows = np.arange(SIZE * start, SIZE * end, dtype=np.uint16)
    return Features(7, start, rows.tobytes())


def test_messages_out_of_order_repeated_and_overlapping_end_as_those_in_order() -> None:
    feed = FeatureFeed(SIZE)
    counts = []
    for start, end in ((5, 7), (0, 3), (1, 3), (2, 5), (0, 2), (7, 8)):
        feed.add(features(start, end))
        counts.append(feed.count)
    assert counts == [0, 3, 3, 7, 7, 8]
    rows = feed.rows_for(0, 9, num_committed=9)
    assert rows is not None
    assert rows.tolist() == [[2 * i, 2 * i + 1] for i in range(8)]


def test_a_token_goes_in_with_the_feature_of_the_one_before() -> None:
    feed = FeatureFeed(SIZE)
    feed.add(features(0, 4))
    rows = feed.rows_for(3, 5, num_committed=8)
    assert rows is not None
    assert rows.tolist() == [[4, 5], [6, 7]]
    assert feed.rows_for(3, 6, num_committed=8) is None, "the feature of token 4 is not here"


def test_committed_tokens_wait_for_their_features_and_drafts_go_one_by_one() -> None:
    feed = FeatureFeed(SIZE)
    assert feed.most_tokens(0, 5, 5, waits=True) == 0
    feed.add(features(0, 3))
    assert feed.most_tokens(0, 8, 5, waits=True) == 4
    assert feed.most_tokens(4, 8, 5, waits=True) == 0
    assert feed.most_tokens(4, 8, 5, waits=False) == 1
    assert feed.most_tokens(5, 8, 5, waits=True) == 1


def test_features_of_tokens_whose_commit_is_still_to_come_are_not_used() -> None:
    feed = FeatureFeed(SIZE)
    feed.add(features(0, 9))
    assert feed.num_fed_by_target(5) == 5
    assert feed.rows_for(4, 6, num_committed=5) is None


def test_who_needs_no_features_is_never_held_up() -> None:
    feed = FeatureFeed(0)
    feed.add(features(0, 3))
    assert feed.most_tokens(2, 9, 5, waits=True) == 7
    assert feed.rows_for(2, 9, 5) is None


def test_features_of_another_size_are_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match=r"features of 12 bytes for sequence 7; it must be a multiple of 10"):
        FeatureFeed(5).add(features(0, 3))
