"""Which tokens of a path are fed next, and what counts as computed once a row has been."""

from __future__ import annotations

import numpy as np
import pytest

from drafter_svc.feature_feed import FeatureFeed
from drafter_svc.feeding import Feeding
from drafter_svc.path import Path
from slipstream.cache.block_pool import BlockPool
from slipstream.cache.block_table import BlockTable
from slipstream.exchange import DraftToken, Features, LawKind

COMMITTED = [5, 6, 7]


def path(*token_ids: int, num_computed: int = 0) -> Path:
    tokens = [DraftToken(token_id, LawKind.ONE_HOT) for token_id in token_ids]
    return Path(BlockTable(BlockPool(4, 4)), draw=0, goal=4, tokens=tokens, num_computed=num_computed)


def feeding(*, feature_size: int = 0, feeds_drawn: bool = False) -> Feeding:
    return Feeding(list(COMMITTED), FeatureFeed(feature_size), feeds_drawn=feeds_drawn)


@pytest.mark.parametrize(("num_computed", "fed"), [(0, [5, 6, 7, 8, 9]), (2, [7, 8, 9]), (4, [9]), (5, [9])])
def test_what_has_no_kv_is_fed_and_the_last_token_always(num_computed: int, fed: list[int]) -> None:
    one = path(8, 9, num_computed=num_computed)
    assert feeding().token_ids(one) == fed
    assert feeding().num_tokens(one, waits=True) == len(fed)


@pytest.mark.parametrize(("feeds_drawn", "num_computed"), [(False, 3), (True, 5)])
def test_drawn_tokens_count_as_computed_if_the_loop_fed_them_but_for_the_last(
    feeds_drawn: bool, num_computed: int
) -> None:
    one = path()
    one.tokens = path(8, 9, 10).tokens  # what the row drew
    feeding(feeds_drawn=feeds_drawn).mark_computed(one, end=3, num_drawn=3)
    assert one.num_computed == num_computed


def test_nothing_past_the_paths_end_counts_as_computed() -> None:
    one = path(8)  # took one of three drawn tokens
    feeding(feeds_drawn=True).mark_computed(one, end=3, num_drawn=3)
    assert one.num_computed == 4


def test_a_path_counts_as_fed_by_the_target_only_without_a_gap() -> None:
    feed = FeatureFeed(1)
    features = Features(1, 0, np.zeros(2, np.uint16).tobytes())  # of tokens 0 and 1: three can be fed with them
    feed.add(features)
    fed = Feeding(list(COMMITTED), feed, feeds_drawn=False)
    one = path()
    fed.mark_target_fed(one, 3)
    assert one.num_by_target == 3
    gap = path(num_computed=2)
    fed.mark_target_fed(gap, 3)
    assert gap.num_by_target == 0, "what stands before was computed from the draft's own output"
