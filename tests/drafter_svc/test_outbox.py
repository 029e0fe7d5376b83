"""What waits for a stream's writer: old drafts may go, errors may not."""

from __future__ import annotations

import asyncio

from drafter_svc.outbox import Outbox
from slipstream.errors import InvalidRequest
from slipstream.exchange import DraftBatch, SequenceFailure


def batch(number: int) -> DraftBatch:
    return DraftBatch((), draft_us=number)


async def read_all(outbox: Outbox) -> list[DraftBatch | SequenceFailure]:
    outbox.close()
    read = []
    while (message := await outbox.get()) is not None:
        read.append(message)
    return read


async def test_a_reader_that_lags_loses_the_oldest_drafts_and_no_failure() -> None:
    outbox = Outbox(max_batches=2)
    failures = [SequenceFailure(i, InvalidRequest("bad")) for i in range(5)]
    for i, failure in enumerate(failures):
        assert outbox.put(failure)
        assert outbox.put(batch(i)) == (i < 2)
    assert await read_all(outbox) == [*failures, batch(3), batch(4)]


async def test_a_waiting_reader_is_woken_by_a_message_and_by_the_end() -> None:
    outbox = Outbox()
    reader = asyncio.create_task(outbox.get())
    await asyncio.sleep(0)
    outbox.put(batch(1))
    assert await asyncio.wait_for(reader, 1) == batch(1)
    reader = asyncio.create_task(outbox.get())
    await asyncio.sleep(0)
    outbox.close()
    assert await asyncio.wait_for(reader, 1) is None
