"""Open, Update and Close, which a gateway sends to verifier and drafter, as messages and back. Judges no meaning."""

from __future__ import annotations

from slipstream.errors import InvalidRequest
from slipstream.exchange import Update
from slipstream.request import SequenceRequest, VerificationMode
from slipstream.wire.arrays import ids_from_wire, ids_to_wire
from slipstream.wire.sampling import sampling_from_wire, sampling_to_wire
from slipstream.wire.v1 import exchange_pb2 as pb


def open_to_wire(request: SequenceRequest) -> pb.Open:
    return pb.Open(
        sequence_id=request.sequence_id,
        token_ids=ids_to_wire(request.token_ids),
        num_prompt_tokens=request.num_prompt_tokens,
        seed=request.seed,
        nonce=request.nonce,
        sample_index=request.sample_index,
        sampling=sampling_to_wire(request.sampling),
        mode=pb.VerificationMode.ValueType(request.mode),
        num_draft_tokens=request.num_draft_tokens,
        fan_out=request.fan_out,
        max_wait_us=request.max_wait_us,
        proposers=request.proposers,
        epoch=request.epoch,
        adapter=request.adapter,
        tenant=request.tenant,
        vocabulary_hash=request.vocabulary_hash,
        deadline_ms=request.deadline_ms,
        request_id=request.request_id,
        features=request.features,
        traceparent=request.traceparent,
        hand_over=request.hand_over,
    )


def open_from_wire(message: pb.Open) -> SequenceRequest:
    return SequenceRequest(
        sequence_id=message.sequence_id,
        token_ids=ids_from_wire(message.token_ids, "token_ids"),
        num_prompt_tokens=message.num_prompt_tokens,
        seed=message.seed,
        nonce=message.nonce,
        sample_index=message.sample_index,
        sampling=sampling_from_wire(message.sampling),
        mode=_mode_from_wire(message.mode),
        num_draft_tokens=message.num_draft_tokens,
        fan_out=message.fan_out,
        max_wait_us=message.max_wait_us,
        proposers=tuple(message.proposers),
        epoch=message.epoch,
        adapter=message.adapter,
        tenant=message.tenant,
        vocabulary_hash=message.vocabulary_hash,
        deadline_ms=message.deadline_ms,
        request_id=message.request_id,
        features=message.features,
        traceparent=message.traceparent,
        hand_over=message.hand_over,
    )


def update_to_wire(update: Update) -> pb.Update:
    return pb.Update(
        sequence_id=update.sequence_id,
        num_draft_tokens=update.num_draft_tokens,
        fan_out=update.fan_out,
        max_wait_us=update.max_wait_us,
    )


def update_from_wire(message: pb.Update) -> Update:
    return Update(message.sequence_id, message.num_draft_tokens, message.fan_out, message.max_wait_us)


def close_to_wire(sequence_id: int) -> pb.Close:
    return pb.Close(sequence_id=sequence_id)


def close_from_wire(message: pb.Close) -> int:
    return message.sequence_id


def _mode_from_wire(value: int) -> VerificationMode:
    try:
        return VerificationMode(value)
    except ValueError:
        raise InvalidRequest(f"mode is {value}; it must be 1 (ratio) or 2 (coupled)") from None
