"""Messages become events, and outputs messages."""

import asyncio
from dataclasses import replace

import pytest

from slipstream.errors import InvalidRequest, Unavailable
from slipstream.exchange import Commit, CommitBatch, DraftBatch, Features, FeaturesWanted, SequenceFailure, Update
from slipstream.request import SamplingParams, SequenceRequest, VerificationMode
from slipstream.wire.requests import close_to_wire, open_to_wire
from slipstream.wire.v1 import exchange_pb2, verifier_pb2
from verifier_svc.messages import Close, Refuse, StreamEnded, StreamOutput
from verifier_svc.metrics import VerifierMetrics
from verifier_svc.observers import Observers
from verifier_svc.servicer import MAX_CHUNK_BYTES, VerifierServicer, to_chunks, to_message, to_responses
from verifier_svc.streams import OutgoingStreams

REQUEST = SequenceRequest(
    sequence_id=7, token_ids=(1, 2), num_prompt_tokens=2, sampling=SamplingParams(), mode=VerificationMode.COUPLED
)


def test_each_kind_of_request_is_unpacked():
    request = verifier_pb2.VerifyRequest
    assert to_message(request(open=open_to_wire(REQUEST))) == REQUEST
    assert to_message(request(update=exchange_pb2.Update(sequence_id=7, num_draft_tokens=3))) == Update(7, 3, 0, 0)
    assert to_message(request(close=close_to_wire(7))) == Close(7)
    assert to_message(request(drafts=exchange_pb2.DraftBatch())) == DraftBatch(())
    wanted = exchange_pb2.FeaturesWanted(sequence_id=7, start=3)
    assert to_message(request(features_wanted=wanted)) == FeaturesWanted(7, 3)
    assert to_message(request()) is None


@pytest.mark.parametrize(
    "change, text",
    [
        ({"mode": 0}, "mode is 0"),
        ({"token_ids": b""}, "prompt is empty"),
        ({"token_ids": b"\1\2\3"}, "token_ids is 3 bytes long"),
        ({"num_prompt_tokens": 3}, "num_prompt_tokens is 3"),
    ],
)
def test_an_open_that_cannot_be_read_becomes_the_failure_of_its_sequence(change, text):
    wire = open_to_wire(REQUEST)
    for field, value in change.items():
        setattr(wire, field, value)
    message = to_message(verifier_pb2.VerifyRequest(open=wire))
    assert isinstance(message, Refuse)
    assert message.failure.sequence_id == 7
    assert isinstance(message.failure.error, InvalidRequest)
    assert text in str(message.failure.error)


def test_all_commits_of_a_step_are_one_message_and_each_failure_another():
    commits = CommitBatch((Commit(1, 3, (4,)), Commit(2, 3, (5,))))
    failures = (SequenceFailure(3, InvalidRequest("no")), SequenceFailure(4, InvalidRequest("no")))
    responses = list(to_responses(StreamOutput(1, commits, failures)))
    assert [response.WhichOneof("message") for response in responses] == ["commits", "error", "error"]
    assert [commit.sequence_id for commit in responses[0].commits.commits] == [1, 2]


def test_features_go_before_the_commits_of_their_step_in_bounded_messages():
    features = tuple(Features(1, start, bytes(200 << 10)) for start in (0, 100))
    responses = list(to_responses(StreamOutput(1, CommitBatch((Commit(1, 200, (4,)),)), (), features)))
    assert [response.WhichOneof("message") for response in responses] == ["features", "features", "commits"]
    assert [response.features.features[0].start for response in responses[:2]] == [0, 100]


def test_a_step_without_commits_sends_no_empty_message():
    assert list(to_responses(StreamOutput(1, CommitBatch(()), ()))) == []


def test_tokenizer_files_travel_in_bounded_chunks(tokenizer):
    class Large:
        content_hash = "h"
        files = {"tokenizer.json": bytes(range(256)) * 2500, "empty": b""}  # noqa: RUF012

    chunks = list(to_chunks(Large()))
    assert max(len(chunk.data) for chunk in chunks) == MAX_CHUNK_BYTES
    for name, content in Large.files.items():
        assert b"".join(chunk.data for chunk in chunks if chunk.file_name == name) == content
    assert {chunk.content_hash for chunk in chunks} == {"h"}


async def test_once_it_drains_a_live_stream_opens_nothing_and_what_is_open_goes_on(tokenizer):
    posted, streams = [], OutgoingStreams(10)
    servicer = VerifierServicer(posted.append, streams, tokenizer, lambda: None, Observers(VerifierMetrics()))

    async def requests():
        yield verifier_pb2.VerifyRequest(open=open_to_wire(REQUEST))
        servicer.refuse_sequences()
        yield verifier_pb2.VerifyRequest(open=open_to_wire(replace(REQUEST, sequence_id=8)))
        yield verifier_pb2.VerifyRequest(update=exchange_pb2.Update(sequence_id=7))
        assert not streams.are_quiet  # neither has been told its end

    conversation = servicer.Verify(requests(), None)
    reading = asyncio.create_task(anext(conversation))
    while len(posted) < 3:
        await asyncio.sleep(0)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    taken, refused, update, ended = (message for _, message in posted)
    assert taken == REQUEST
    assert (refused.failure.sequence_id, type(refused.failure.error)) == (8, Unavailable)
    assert update.sequence_id == 7
    assert ended == StreamEnded()
