"""The recorded load: what it holds, and what a replay counts. Against a scripted gateway."""

from __future__ import annotations

from collections import Counter

from bench.mixed_load import PERIOD, Recorded, load_recorded, replay, stretch
from tests.launcher.scripted_gateway import serving


def recorded(prompt: str) -> Recorded:
    return Recorded(kind="chat", prompt=prompt, temperature=0.0, max_tokens=7)


def test_every_period_holds_each_kind_twice() -> None:
    every = load_recorded()
    for first in range(0, len(every), PERIOD):
        assert Counter(one.kind for one in every[first : first + PERIOD]) == {"chat": 2, "copy": 2, "story": 2}


def test_a_stretch_grows_with_the_streams_and_is_whole_periods() -> None:
    assert [len(stretch(load_recorded(), streams, 2.0)) for streams in (1, 4, 16, 64)] == [6, 12, 36, 132]


def test_requests_carry_no_seed_by_which_they_would_teach_one_another_noise() -> None:
    assert not any(one.request().HasField("seed") for one in load_recorded())


async def test_a_replay_ends_when_a_stream_finds_no_more_requests_and_counts_what_came() -> None:
    with serving() as (_, address):
        replayed = await replay(address, "key", [recorded("endless"), recorded("one"), recorded("two")], 2)
    assert replayed.num_tokens == 1 + 3 + 3
    assert replayed.tokens_per_second > 0


async def test_a_refused_request_is_counted_and_the_next_one_is_asked() -> None:
    with serving() as (_, address):
        replayed = await replay(address, "key", [recorded("refuse"), recorded("one")], 1)
    assert replayed.failures == {"RESOURCE_EXHAUSTED: no room now": 1}
    assert replayed.num_tokens == 3
