"""The queue between a session and its client."""

from __future__ import annotations

import asyncio

import pytest

from gateway.client_stream import ClientStream, TooSlow
from gateway.completion import Delta, PromptPart, Usage
from slipstream.errors import Unavailable
from slipstream.request import FinishReason


def delta(*token_ids: int, last: bool = False, index: int = 0) -> Delta:
    reason = FinishReason.STOP if last else FinishReason.NONE
    return Delta(
        text="".join(map(chr, token_ids)),
        token_ids=list(token_ids),
        drafted=[False] * len(token_ids),
        finish_reason=reason,
        usage=Usage() if last else None,
        index=index,
    )


async def collect(stream: ClientStream) -> list[Delta]:
    return [item async for item in stream]


async def test_what_waits_is_told_in_one_delta() -> None:
    stream = ClientStream(100)
    for item in (delta(65, 66), delta(67), delta(68, last=True)):
        stream.put(item)
    (whole,) = await collect(stream)
    assert (whole.text, whole.token_ids, whole.finish_reason) == ("ABCD", [65, 66, 67, 68], FinishReason.STOP)
    assert whole.usage is not None


async def test_a_client_that_waits_gets_each_delta_at_once() -> None:
    stream = ClientStream(100)
    reader = asyncio.create_task(collect(stream))
    for item in (delta(65), delta(66, last=True)):
        stream.put(item)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert [item.token_ids for item in await reader] == [[65], [66]]


async def test_a_client_that_lags_too_far_behind_is_given_up() -> None:
    stream = ClientStream(3)
    stream.put(delta(1, 2, 3, 4))  # one delta is always taken, however long
    with pytest.raises(TooSlow, match=r"4 tokens wait to be read \(limit 3\)"):
        stream.put(delta(5))


async def test_an_error_comes_after_what_was_committed_before_it() -> None:
    stream = ClientStream(100)
    stream.put(delta(65))
    stream.fail(Unavailable("gone"))
    stream.fail(Unavailable("told already"))
    reader = stream.__aiter__()
    assert (await anext(reader)).token_ids == [65]
    with pytest.raises(Unavailable, match="gone"):
        await anext(reader)


async def test_samples_are_merged_each_by_itself_and_the_last_one_ends_the_stream() -> None:
    stream = ClientStream(100, num_samples=2)
    for item in (delta(65), delta(97, index=1), delta(66, last=True), delta(98, index=1)):
        stream.put(item)
    reader = stream.__aiter__()
    told = [await anext(reader), await anext(reader)]
    assert [(item.index, item.text, item.finish_reason) for item in told] == [
        (0, "AB", FinishReason.STOP),
        (1, "ab", FinishReason.NONE),
    ]
    stream.put(delta(99, index=1, last=True))
    assert (await anext(reader)).text == "c"
    with pytest.raises(StopAsyncIteration):
        await anext(reader)


async def test_parts_of_the_prompt_come_first_one_by_one_and_do_not_count_as_lag() -> None:
    stream = ClientStream(2)
    stream.put(delta(65))
    for start in (0, 5):
        stream.put(Delta(prompt=PromptPart(token_ids=list(range(start, start + 5)))))
    stream.put(delta(66, last=True))
    told = await collect(stream)
    assert [len(item.prompt.token_ids) for item in told if item.prompt] == [5, 5]
    assert [item.text for item in told] == ["", "", "AB"]
