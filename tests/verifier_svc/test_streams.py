"""Each gateway's queue: order, bounds and end."""

import asyncio

import pytest

from slipstream.errors import Exhausted
from slipstream.exchange import Commit, CommitBatch, SequenceFailure
from slipstream.request import FinishReason
from verifier_svc.messages import StreamOutput
from verifier_svc.streams import OutgoingStreams


def output(stream, *, sequence_id=1, finish_reason=FinishReason.NONE, failures=()):
    commit = Commit(sequence_id, 3, (4,), finish_reason=finish_reason)
    return StreamOutput(stream, CommitBatch((commit,)), tuple(failures))


async def read(stream):
    return await asyncio.wait_for(_collect(stream), 5)


async def _collect(stream):
    return [said async for said in stream.outputs()]


async def test_each_stream_hears_its_own_outputs_in_order():
    streams = OutgoingStreams(max_queued=8)
    first, second = streams.open(), streams.open()
    mine = [output(first.number, sequence_id=i) for i in range(3)]
    streams.deliver([mine[0], output(second.number), *mine[1:]])
    first.end_requests()
    assert await read(first) == mine


async def test_after_the_last_request_it_ends_with_the_last_open_sequence():
    streams = OutgoingStreams(max_queued=8)
    stream = streams.open()
    for sequence_id in (1, 2, 3):
        stream.note_open(sequence_id)
    stream.end_requests()
    stream.note_close(3)
    streams.deliver([output(stream.number, sequence_id=1, finish_reason=FinishReason.STOP)])
    reader = asyncio.create_task(read(stream))
    await asyncio.sleep(0.01)
    assert not reader.done()
    streams.deliver([output(stream.number, sequence_id=9, failures=[SequenceFailure(2, Exhausted("full"))])])
    assert len(await reader) == 2


async def test_a_gateway_that_does_not_read_is_cut_off():
    streams = OutgoingStreams(max_queued=4)
    slow, other = streams.open(), streams.open()
    for _ in range(6):
        streams.deliver([output(slow.number)])
    streams.deliver([output(other.number)])
    other.end_requests()
    with pytest.raises(Exhausted, match="4 messages"):
        await read(slow)
    assert len(await read(other)) == 1


async def test_what_comes_for_a_stream_that_is_gone_is_dropped():
    streams = OutgoingStreams(max_queued=4)
    stream = streams.open()
    streams.close(stream)
    streams.deliver([output(stream.number)])


async def test_it_is_quiet_when_all_that_was_opened_is_over_and_written():
    streams = OutgoingStreams(max_queued=4)
    stream = streams.open()
    stream.note_open(1)
    assert not streams.are_quiet
    streams.deliver([output(stream.number, sequence_id=1, finish_reason=FinishReason.STOP)])
    outputs = stream.outputs()
    assert not streams.are_quiet
    await anext(outputs)
    assert not streams.are_quiet  # the reader has it and is writing
    writing = asyncio.create_task(anext(outputs))
    await asyncio.sleep(0)
    assert streams.are_quiet
    writing.cancel()


async def test_a_gateway_that_is_cut_off_costs_no_more_memory():
    streams = OutgoingStreams(max_queued=2)
    slow = streams.open()
    for _ in range(9):
        streams.deliver([output(slow.number)])
    assert slow._queue.qsize() == 3
