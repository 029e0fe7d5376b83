"""The verifier on the network: unpacks messages, posts them to the engine, replies. Decides nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from typing import Any

import grpc

from slipstream.errors import InvalidRequest, Unavailable
from slipstream.exchange import DraftBatch, ModelInfo, SequenceFailure
from slipstream.request import SequenceRequest
from slipstream.sequence_log import SequenceLog
from slipstream.telemetry.sequences import SequenceSpans
from slipstream.text.tokenizer import Tokenizer
from slipstream.wire.calls import REFUSAL
from slipstream.wire.commits import commit_batch_to_wire
from slipstream.wire.drafts import draft_batch_from_wire
from slipstream.wire.failures import failure_to_wire
from slipstream.wire.features import feature_batches, features_to_wire, wanted_from_wire
from slipstream.wire.model_info import model_info_to_wire
from slipstream.wire.requests import close_from_wire, open_from_wire, update_from_wire
from slipstream.wire.v1 import exchange_pb2, verifier_pb2, verifier_pb2_grpc
from verifier_svc.messages import Close, Event, Message, Refuse, StreamEnded, StreamOutput
from verifier_svc.observers import Observers
from verifier_svc.round_trips import RoundTrips
from verifier_svc.streams import OutgoingStream, OutgoingStreams

_LOG = logging.getLogger(__name__)

MAX_CHUNK_BYTES = 256 << 10


class VerifierServicer(verifier_pb2_grpc.VerifierServicer):
    def __init__(
        self,
        post: Callable[[Event], None],
        streams: OutgoingStreams,
        tokenizer: Tokenizer,
        info: Callable[[], ModelInfo],
        observers: Observers,
    ) -> None:
        self._post = post
        self._streams = streams
        self._tokenizer = tokenizer
        self._info = info
        self._observers = observers
        self._metrics = observers.metrics
        self._timeline = observers.timeline
        self._refusing = False

    def refuse_sequences(self) -> None:
        """Takes no new sequence from now on, on streams that are open either."""
        self._refusing = True

    async def Verify(
        self,
        request_iterator: AsyncIterator[verifier_pb2.VerifyRequest],
        context: grpc.aio.ServicerContext[Any, Any],
    ) -> AsyncIterator[verifier_pb2.VerifyResponse]:
        stream, log = self._streams.open(), self._observers.sequence_log(_LOG)
        trips = RoundTrips(self._metrics.round_trip_seconds)
        reader = asyncio.create_task(self._read(stream, request_iterator, log, trips))
        try:
            async for output in stream.outputs():
                note_ends(output, log)
                trips.note_commits(output.commits.commits)
                with self._timeline.span("commit out", f"{len(output.commits.commits)} sequences"):
                    responses = list(to_responses(output))
                for response in responses:
                    yield response
            await reader  # it is done; what went wrong in it is this call's failure
        finally:
            reader.cancel()
            log.stream_ended()
            self._streams.close(stream)
            self._post((stream.number, StreamEnded()))

    async def GetModel(
        self, request: exchange_pb2.GetModelRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> exchange_pb2.ModelInfo:
        return model_info_to_wire(self._info())

    async def GetTokenizer(
        self, request: verifier_pb2.GetTokenizerRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> AsyncIterator[verifier_pb2.TokenizerChunk]:
        if request.known_hash != self._tokenizer.content_hash:
            for chunk in to_chunks(self._tokenizer):
                yield chunk

    async def _read(
        self,
        stream: OutgoingStream,
        requests: AsyncIterator[verifier_pb2.VerifyRequest],
        log: SequenceLog,
        trips: RoundTrips,
    ) -> None:
        try:
            async for request in requests:
                with self._timeline.span("gRPC in", request.WhichOneof("message") or "unknown"):
                    message = to_message(request)
                self._count_malformed(request, message)
                if self._refusing and isinstance(message, SequenceRequest):
                    stream.note_open(message.sequence_id)  # until its end is sent
                    message = Refuse(SequenceFailure(message.sequence_id, Unavailable(REFUSAL)))
                elif isinstance(message, SequenceRequest):
                    stream.note_open(message.sequence_id)
                    log.opened(message)
                elif isinstance(message, DraftBatch):
                    trips.note_drafts(message.drafts)
                elif isinstance(message, Close):
                    trips.note_close(message.sequence_id)
                    stream.note_close(message.sequence_id)
                    log.closed(message.sequence_id)
                if message is not None:
                    self._post((stream.number, message))
        finally:
            stream.end_requests()

    def _count_malformed(self, request: verifier_pb2.VerifyRequest, message: Message | None) -> None:
        if message is None:
            self._metrics.malformed_messages.add(1, "unknown")
        elif isinstance(message, Refuse):
            self._metrics.malformed_messages.add(1, "open")
        elif isinstance(message, DraftBatch) and len(message.drafts) < len(request.drafts.drafts):
            self._metrics.malformed_messages.add(len(request.drafts.drafts) - len(message.drafts), "draft")


def to_message(request: verifier_pb2.VerifyRequest) -> Message | None:
    """What a request says; None for a kind that this version does not know."""
    match request.WhichOneof("message"):
        case "open":
            try:
                return open_from_wire(request.open)
            except InvalidRequest as error:
                return Refuse(SequenceFailure(request.open.sequence_id, error))
        case "update":
            return update_from_wire(request.update)
        case "close":
            return Close(close_from_wire(request.close))
        case "drafts":
            return draft_batch_from_wire(request.drafts)
        case "features_wanted":
            return wanted_from_wire(request.features_wanted)
    return None


def note_work(output: StreamOutput, spans: SequenceSpans) -> None:
    """Each commit is a round of its sequence, and its step the time that it took."""
    seconds = output.commits.step.step_us * 1e-6
    for commit in output.commits.commits:
        counts = {"tokens": len(commit.token_ids), "draft_tokens": commit.num_draft_tokens}
        spans.worked(commit.sequence_id, seconds, **counts, accepted_tokens=commit.num_accepted, wait_us=commit.wait_us)


def note_ends(output: StreamOutput, log: SequenceLog) -> None:
    if log.spans.is_on:
        note_work(output, log.spans)
    for commit in output.commits.commits:
        log.committed(commit)
    for failure in output.failures:
        log.failed(failure)


def to_responses(output: StreamOutput) -> Iterator[verifier_pb2.VerifyResponse]:
    """Features, since drafting needs them; each part of a prompt; all commits in one; each failed sequence."""
    for features in feature_batches(map(features_to_wire, output.features)):
        yield verifier_pb2.VerifyResponse(features=features)
    batch = output.commits
    for part in batch.prompt_logprobs:
        alone = replace(batch, commits=(), prompt_logprobs=(part,))
        yield verifier_pb2.VerifyResponse(commits=commit_batch_to_wire(alone))
    if batch.commits:
        yield verifier_pb2.VerifyResponse(commits=commit_batch_to_wire(replace(batch, prompt_logprobs=())))
    for failure in output.failures:
        yield verifier_pb2.VerifyResponse(error=failure_to_wire(failure))


def to_chunks(tokenizer: Tokenizer) -> Iterator[verifier_pb2.TokenizerChunk]:
    for name, content in tokenizer.files.items():
        for start in range(0, max(1, len(content)), MAX_CHUNK_BYTES):
            yield verifier_pb2.TokenizerChunk(
                content_hash=tokenizer.content_hash,
                file_name=name,
                data=content[start : start + MAX_CHUNK_BYTES],
            )
