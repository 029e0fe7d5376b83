"""Who looks gets all events, in order; who does not keep up is let go."""

from __future__ import annotations

import asyncio

import pytest

from gateway.watch.feed import Event, Feed
from slipstream.errors import Exhausted

NEVER = 60.0


async def test_nobody_looks_and_nothing_is_kept() -> None:
    feed = Feed()
    feed.publish({"n": 1})
    assert not feed.is_watched


async def test_all_viewers_get_what_comes_while_they_look() -> None:
    feed = Feed()
    with feed.viewing() as first:
        feed.publish({"n": 1})
        with feed.viewing() as second:
            feed.publish({"n": 2})
            assert await anext(first.batches(NEVER)) == [{"n": 1}, {"n": 2}]
            assert await anext(second.batches(NEVER)) == [{"n": 2}]
    assert not feed.is_watched


async def test_a_full_viewer_is_dropped_and_the_others_are_not() -> None:
    feed = Feed(max_unsent=2)
    with feed.viewing() as slow, feed.viewing() as quick:
        got: list[Event] = []
        for n in range(3):
            feed.publish({"n": n})
            got += await anext(quick.batches(NEVER))
        assert slow.is_dropped
        assert [batch async for batch in slow.batches(NEVER)] == []
        assert got == [{"n": 0}, {"n": 1}, {"n": 2}]


async def test_there_are_so_many_viewers_and_no_more() -> None:
    feed = Feed(max_viewers=1)
    with feed.viewing(), pytest.raises(Exhausted, match="1 viewers watch already"), feed.viewing():
        pass
    with feed.viewing():
        assert feed.is_watched


async def test_silence_is_an_empty_batch() -> None:
    with Feed().viewing() as viewer:
        assert await anext(viewer.batches(0.01)) == []


async def test_the_end_wakes_who_waits() -> None:
    feed = Feed()
    with feed.viewing() as viewer:
        asyncio.get_running_loop().call_soon(feed.end)
        assert [batch async for batch in viewer.batches(NEVER)] == []
        assert not viewer.is_dropped
