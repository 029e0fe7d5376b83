"""The servicer alone: streams by number, messages to events, output to the right stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any, cast

import pytest

from drafter_svc.adapters import AdapterAnswer, UnloadAdapter
from drafter_svc.events import AdapterOrdered, Closed, Committed, Event, FeaturesArrived, Opened, StreamEnded, Updated
from drafter_svc.metrics import DrafterMetrics
from drafter_svc.servicer import Context, DrafterServicer
from slipstream.errors import UnknownModel, VocabularyMismatch
from slipstream.exchange import (
    AdapterInfo,
    AdapterList,
    Commit,
    CommitBatch,
    Draft,
    DraftBatch,
    DraftToken,
    Features,
    LawKind,
    ModelInfo,
    SequenceFailure,
)
from slipstream.exchange import Update as UpdateMessage
from slipstream.wire.adapters import adapter_list_from_wire
from slipstream.wire.commits import commit_batch_to_wire, commit_to_wire
from slipstream.wire.drafts import draft_batch_from_wire
from slipstream.wire.features import features_to_wire
from slipstream.wire.model_info import model_info_from_wire
from slipstream.wire.requests import close_to_wire, open_to_wire, update_to_wire
from slipstream.wire.v1 import drafter_pb2 as pb
from slipstream.wire.v1 import exchange_pb2
from tests.drafter_svc.scripted import request

INFO = ModelInfo(name="tiny", vocabulary_hash="a", vocab_size=3, max_model_len=9, proposers=("draft_model",))
BATCH = DraftBatch((Draft(7, 5, "draft_model", 1, (DraftToken(3, LawKind.ONE_HOT),)),), draft_us=3, held_us=4)


class Call:
    """One Draft call without gRPC."""

    def __init__(self, servicer: DrafterServicer) -> None:
        self.requests: asyncio.Queue[pb.DraftRequest | None] = asyncio.Queue()
        self.written: list[pb.DraftResponse] = []
        self.task = asyncio.create_task(self._run(servicer))

    async def _iterate(self) -> AsyncIterator[pb.DraftRequest]:
        while (message := await self.requests.get()) is not None:
            yield message

    async def _run(self, servicer: DrafterServicer) -> None:
        """As the server's interceptor does it."""
        async with aclosing(servicer.Draft(self._iterate(), cast(Context, None))) as responses:
            async for response in responses:
                self.written.append(response)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
def events() -> list[Event]:
    return []


@pytest.fixture
def servicer(events: list[Event]) -> DrafterServicer:
    return DrafterServicer(events.append, lambda: INFO, DrafterMetrics())


async def test_each_message_is_one_event_of_its_stream(servicer: DrafterServicer, events: list[Event]) -> None:
    call = Call(servicer)
    update, commits = UpdateMessage(7, 4, 2, 0), CommitBatch((Commit(7, 5, (1, 2)),))
    features = Features(7, 3, b"1234")
    for message in (
        pb.DraftRequest(open=open_to_wire(request())),
        pb.DraftRequest(update=update_to_wire(update)),
        pb.DraftRequest(features=exchange_pb2.FeatureBatch(features=[features_to_wire(features)])),
        pb.DraftRequest(commits=commit_batch_to_wire(commits)),
        pb.DraftRequest(close=close_to_wire(7)),
    ):
        call.requests.put_nowait(message)
    call.requests.put_nowait(None)
    await asyncio.wait_for(call.task, 2)
    opened, updated, told, committed, closed, ended = events
    assert isinstance(opened, Opened)
    assert opened.request == request()
    assert updated == Updated(1, update)
    assert told == FeaturesArrived(1, (features,))
    assert isinstance(committed, Committed)
    assert committed.batch == commits
    assert (closed, ended) == (Closed(1, 7), StreamEnded(1))


async def test_output_goes_to_its_stream_and_to_none_that_is_gone(servicer: DrafterServicer) -> None:
    calls = [Call(servicer), Call(servicer)]
    await settle()
    failure = SequenceFailure(8, VocabularyMismatch("another vocabulary"))
    servicer.deliver([(2, BATCH), (2, failure), (99, BATCH)])
    await settle()
    assert calls[0].written == []
    error, drafts = calls[1].written
    assert draft_batch_from_wire(drafts.drafts) == BATCH
    assert (error.error.sequence_id, error.error.message) == (8, "another vocabulary")
    for call in calls:
        call.requests.put_nowait(None)
        await asyncio.wait_for(call.task, 2)


async def test_a_cancelled_call_ends_its_stream(servicer: DrafterServicer, events: list[Event]) -> None:
    call = Call(servicer)
    await settle()
    call.task.cancel()
    await asyncio.wait([call.task], timeout=2)
    assert events == [StreamEnded(1)]
    servicer.deliver([(1, BATCH)])
    assert call.written == []


async def test_what_cannot_be_read_fails_an_open_and_is_left_out_otherwise(
    events: list[Event], caplog: pytest.LogCaptureFixture
) -> None:
    metrics = DrafterMetrics()
    call = Call(DrafterServicer(events.append, lambda: INFO, metrics))
    bad_open = open_to_wire(request())
    bad_open.mode = exchange_pb2.VERIFICATION_MODE_UNSPECIFIED
    for message in (pb.DraftRequest(open=bad_open), pb.DraftRequest()):
        call.requests.put_nowait(message)
    await settle()
    (response,) = call.written
    assert (response.error.sequence_id, "mode" in response.error.message) == (7, True)
    assert len(caplog.records) == 1
    assert [metrics.malformed_messages.value(kind) for kind in ("open", "unknown")] == [1, 1]
    assert events == []
    call.requests.put_nowait(None)
    await asyncio.wait_for(call.task, 2)


async def test_a_commit_that_cannot_be_read_ends_its_sequence_and_the_others_of_the_batch_count(
    events: list[Event],
) -> None:
    metrics = DrafterMetrics()
    call = Call(DrafterServicer(events.append, lambda: INFO, metrics))
    good = Commit(8, 5, (1, 2))
    batch = [exchange_pb2.Commit(sequence_id=7, token_ids=b"123"), commit_to_wire(good)]
    call.requests.put_nowait(pb.DraftRequest(commits=exchange_pb2.CommitBatch(commits=batch)))
    await settle()
    ended, committed = events
    assert ended == Closed(1, 7)
    assert isinstance(committed, Committed)
    assert committed.batch == CommitBatch((good,))
    (response,) = call.written
    assert (response.error.sequence_id, "token_ids is 3 bytes" in response.error.message) == (7, True)
    assert metrics.malformed_messages.value("commit") == 1
    call.requests.put_nowait(None)
    await asyncio.wait_for(call.task, 2)


async def test_a_fault_of_our_own_while_reading_fails_the_call(servicer: DrafterServicer) -> None:
    call = Call(servicer)
    call.requests.put_nowait(cast(Any, object()))
    with pytest.raises(AttributeError):
        await asyncio.wait_for(call.task, 2)


async def test_orders_about_adapters_are_posted_and_answered_by_their_number(
    servicer: DrafterServicer, events: list[Event]
) -> None:
    held = AdapterList((AdapterInfo("legal", "legal", 8),), 4, 100)
    call = asyncio.create_task(servicer.ListAdapters(pb.ListAdaptersRequest(), cast(Context, None)))
    await settle()
    (ordered,) = events
    assert isinstance(ordered, AdapterOrdered)
    servicer.deliver([(ordered.stream, AdapterAnswer(held))])
    assert adapter_list_from_wire(await call) == held
    refused = asyncio.create_task(servicer.UnloadAdapter(pb.UnloadAdapterRequest(name="x"), cast(Context, None)))
    await settle()
    assert events[1] == AdapterOrdered(ordered.stream + 1, UnloadAdapter("x"))
    servicer.deliver([(ordered.stream + 1, AdapterAnswer(UnknownModel("no x")))])
    with pytest.raises(UnknownModel):
        await refused


async def test_the_model_is_told(servicer: DrafterServicer) -> None:
    told = await servicer.GetModel(exchange_pb2.GetModelRequest(), cast(Context, None))
    assert model_info_from_wire(told) == INFO
