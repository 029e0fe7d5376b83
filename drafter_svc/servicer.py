"""The Drafter service: unpack, one call, reply. Knows messages and streams; the drafter does the work."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from itertools import count
from typing import Any

import grpc

from drafter_svc.adapter_calls import AdapterCalls
from drafter_svc.adapter_folder import AdapterFolder
from drafter_svc.adapters import AdapterAnswer
from drafter_svc.events import (
    AdapterOrdered,
    Closed,
    Committed,
    Event,
    FeaturesArrived,
    Opened,
    Output,
    StreamEnded,
    StreamId,
    Updated,
)
from drafter_svc.metrics import DrafterMetrics
from drafter_svc.outbox import Outbox
from slipstream.errors import InvalidRequest
from slipstream.exchange import CommitBatch, DraftBatch, ModelInfo, SequenceFailure
from slipstream.sequence_log import SequenceLog
from slipstream.telemetry.sequences import SequenceSpans
from slipstream.telemetry.spans import NO_TRACER, Tracer
from slipstream.wire.adapters import adapter_list_to_wire
from slipstream.wire.commits import commit_from_wire
from slipstream.wire.drafts import draft_batch_to_wire
from slipstream.wire.failures import failure_to_wire
from slipstream.wire.features import features_from_wire
from slipstream.wire.model_info import model_info_to_wire
from slipstream.wire.requests import close_from_wire, open_from_wire, update_from_wire
from slipstream.wire.v1 import drafter_pb2, drafter_pb2_grpc, exchange_pb2

_LOG = logging.getLogger(__name__)

NO_FOLDER = AdapterFolder()

Context = grpc.aio.ServicerContext[Any, Any]


class DrafterServicer(drafter_pb2_grpc.DrafterServicer):
    """`post` hands an event to the drafter's thread; `deliver` is to be given what comes back, on the event loop."""

    def __init__(
        self,
        post: Callable[[Event], None],
        info: Callable[[], ModelInfo],
        metrics: DrafterMetrics,
        adapters: AdapterFolder = NO_FOLDER,
        tracer: Tracer = NO_TRACER,
    ) -> None:
        self._post = post
        self._info = info
        self._metrics = metrics
        self._tracer = tracer
        self._streams: dict[StreamId, tuple[Outbox, SequenceLog]] = {}
        self._stream_ids = count(1)
        self._adapters = AdapterCalls(
            lambda number, order: post(AdapterOrdered(number, order)), adapters, self._stream_ids
        )

    def deliver(self, output: Output) -> None:
        for stream, message in output:
            if isinstance(message, AdapterAnswer):
                self._adapters.deliver(stream, message)
            elif to_stream := self._streams.get(stream):
                outbox, log = to_stream
                if isinstance(message, SequenceFailure):
                    log.failed(message)
                elif log.spans.is_on:
                    _note_work(message, log.spans)
                if not outbox.put(message):
                    self._metrics.unsent_batches.add(1)

    def _sequence_log(self) -> SequenceLog:
        return SequenceLog(_LOG, self._metrics.sequences, SequenceSpans(self._tracer, "drafter", "draft"))

    async def Draft(
        self, request_iterator: AsyncIterator[drafter_pb2.DraftRequest], context: Context
    ) -> AsyncIterator[drafter_pb2.DraftResponse]:
        stream, outbox, log = next(self._stream_ids), Outbox(), self._sequence_log()
        self._streams[stream] = outbox, log
        reader = asyncio.create_task(self._read(stream, request_iterator, outbox, log))
        try:
            while (message := await outbox.get()) is not None:
                yield _to_wire(message)
            await reader  # it is done; what went wrong in it is this call's failure
        finally:
            reader.cancel()
            del self._streams[stream]
            log.stream_ended()
            self._post(StreamEnded(stream))

    async def GetModel(self, request: exchange_pb2.GetModelRequest, context: Context) -> exchange_pb2.ModelInfo:
        return model_info_to_wire(self._info())

    async def LoadAdapter(self, request: drafter_pb2.LoadAdapterRequest, context: Context) -> drafter_pb2.AdapterList:
        return adapter_list_to_wire(await self._adapters.load(request.name, request.path))

    async def UnloadAdapter(
        self, request: drafter_pb2.UnloadAdapterRequest, context: Context
    ) -> drafter_pb2.AdapterList:
        return adapter_list_to_wire(await self._adapters.unload(request.name))

    async def ListAdapters(self, request: drafter_pb2.ListAdaptersRequest, context: Context) -> drafter_pb2.AdapterList:
        return adapter_list_to_wire(await self._adapters.listed())

    async def _read(
        self, stream: StreamId, requests: AsyncIterator[drafter_pb2.DraftRequest], outbox: Outbox, log: SequenceLog
    ) -> None:
        try:
            async for request in requests:
                try:
                    if request.WhichOneof("message") == "commits":
                        self._take_commits(stream, request.commits, outbox, log)
                        continue
                    event = _to_event(stream, request)
                    _note(event, log)
                    self._post(event)
                except InvalidRequest as error:
                    self._metrics.malformed_messages.add(1, request.WhichOneof("message") or "unknown")
                    _refuse(request, error, outbox)
        finally:
            outbox.close()

    def _take_commits(
        self, stream: StreamId, message: exchange_pb2.CommitBatch, outbox: Outbox, log: SequenceLog
    ) -> None:
        """One that cannot be read ends its sequence here, for all later ones build on it; the others count."""
        commits = []
        for one in message.commits:
            try:
                commits.append(commit_from_wire(one))
            except InvalidRequest as error:
                failure = SequenceFailure(one.sequence_id, error)
                self._metrics.malformed_messages.add(1, "commit")
                log.failed(failure)
                outbox.put(failure)
                self._post(Closed(stream, one.sequence_id))
        event = Committed(stream, CommitBatch(tuple(commits)))
        _note(event, log)
        self._post(event)


def _to_event(stream: StreamId, request: drafter_pb2.DraftRequest) -> Event:
    match request.WhichOneof("message"):
        case "open":
            return Opened(stream, open_from_wire(request.open))
        case "update":
            return Updated(stream, update_from_wire(request.update))
        case "close":
            return Closed(stream, close_from_wire(request.close))
        case "features":
            return FeaturesArrived(stream, tuple(features_from_wire(message) for message in request.features.features))
        case _:
            raise InvalidRequest(
                "the message is empty or of an unknown kind; send open, update, close, commits or features"
            )


def _note_work(batch: DraftBatch, spans: SequenceSpans) -> None:
    """The batch is a round of each sequence in it."""
    drafts_of = Counter(draft.sequence_id for draft in batch.drafts)
    tokens_of: Counter[int] = Counter()
    for draft in batch.drafts:
        tokens_of[draft.sequence_id] += len(draft.tokens)
    for sequence_id, num_drafts in drafts_of.items():
        spans.worked(sequence_id, batch.draft_us * 1e-6, paths=num_drafts, offered_tokens=tokens_of[sequence_id])


def _note(event: Event, log: SequenceLog) -> None:
    match event:
        case Opened(_, request):
            log.opened(request)
        case Closed(_, sequence_id):
            log.closed(sequence_id)
        case Committed(_, batch):
            for commit in batch.commits:
                log.committed(commit)


def _refuse(request: drafter_pb2.DraftRequest, error: InvalidRequest, outbox: Outbox) -> None:
    """A bad open fails its sequence; anything else unreadable is left out, which costs drafts and no stream."""
    if request.WhichOneof("message") == "open":
        outbox.put(SequenceFailure(request.open.sequence_id, error))
    else:
        _LOG.warning("left out a message: %s", error)


def _to_wire(message: DraftBatch | SequenceFailure) -> drafter_pb2.DraftResponse:
    if isinstance(message, SequenceFailure):
        return drafter_pb2.DraftResponse(error=failure_to_wire(message))
    return drafter_pb2.DraftResponse(drafts=draft_batch_to_wire(message))
